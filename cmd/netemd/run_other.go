//go:build !linux

package main

import (
	"fmt"
	"io"
)

// run says that there is no agent here. 6 is "not supported here".
func run(_ []string, _, stderr io.Writer) int {
	fmt.Fprintln(stderr, "netemd: the agent runs on Linux; netemctl talks to one from here")
	return 6
}
