// Command netemd is the agent: it makes labs and impairs packets on this host, at
// the order of netemctl. It needs root.
package main

import (
	"os"

	"netemd/internal/child"
)

func main() {
	child.Run()
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}
