package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"netemd/internal/agent"
	"netemd/internal/config"
)

// configure checks a configuration, or shows what is in force.
func configure(args []string, stdout, stderr io.Writer) int {
	const known = "netemd: config what? check [FILE] or show [flags]"
	if len(args) == 0 {
		fmt.Fprintln(stderr, known)
		return exitUsage
	}
	f, code, done := parse(args[1:], stderr)
	switch {
	case done:
		return code
	case args[0] == "check" && len(f.args) == 1 && f.config == "":
		f.config = f.args[0]
	case args[0] != "check" && args[0] != "show" || len(f.args) > 0:
		fmt.Fprintln(stderr, known)
		return exitUsage
	}
	c, err := f.settings()
	if err == nil {
		err = c.Explain(agent.Check(c.Config))
	}
	if err != nil {
		return max(report(stderr, err), exitUsage)
	}
	if args[0] == "show" {
		text, err := c.YAML()
		if err != nil {
			return report(stderr, err)
		}
		fmt.Fprintf(stdout, "%s", text)
		return exitOK
	}
	if f.config == "" {
		if _, err := os.Stat(config.DefaultPath); errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintln(stdout, "there is no", config.DefaultPath+": the defaults are in force, which 'netemd config show' says")
			return exitOK
		}
		f.config = config.DefaultPath
	}
	fmt.Fprintln(stdout, f.config, "is sound; 'netemd config show' says what is in force")
	return exitOK
}
