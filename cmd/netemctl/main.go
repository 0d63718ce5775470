// Netemctl impairs the network of a target, and measures what that does to a real
// client. It talks to netemd.
package main

import (
	"context"
	"os"
	"time"

	"golang.org/x/term"

	"netemd/internal/cli"
)

func main() {
	ctx, stop := cli.UntilInterrupted(context.Background())
	code := cli.Run(ctx, cli.Env{
		Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		StdoutTerminal:  term.IsTerminal(int(os.Stdout.Fd())),
		StderrTerminal:  term.IsTerminal(int(os.Stderr.Fd())),
		Now:             time.Now,
		Dial:            cli.Dial,
		Command:         cli.RunCommand,
		Group:           cli.RunGroup,
		FindCommand:     cli.FindCommand,
		StaleNamespaces: cli.StaleNamespaces,
		Namespaces:      cli.Namespaces,
		Devices:         cli.Devices,
		LookupHost:      cli.LookupHost,
		SSHConnection:   cli.SSHConnection,
	})
	stop()
	os.Exit(code)
}
