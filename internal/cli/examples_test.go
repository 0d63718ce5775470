package cli

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// tree is every command of a fresh netemctl, by its path.
func tree() map[string]*cobra.Command {
	a := &app{positional: map[*cobra.Command]func(string) error{}}
	all := map[string]*cobra.Command{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		all[below(c)] = c
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(a.root())
	return all
}

func TestExamples(t *testing.T) {
	commands := tree()
	if len(commands) < 35 {
		t.Fatalf("only %d commands were found", len(commands))
	}
	for path := range examples {
		if commands[path] == nil {
			t.Errorf("examples of %q, which is no command", path)
		}
	}
	for path, cmd := range commands {
		if cmd.Runnable() && cmd.Example == "" {
			t.Errorf("%q has no example", path)
		}
		lines := strings.Split(cmd.Example, "\n")
		if len(lines) > 4 {
			t.Errorf("%q has %d examples", path, len(lines))
		}
		comment := -1
		for _, line := range lines {
			if line == "" {
				continue
			}
			if len(line) > 100 {
				t.Errorf("%q: the line is long: %s", path, line)
			}
			if at := strings.Index(line, "#"); at >= 0 {
				if comment >= 0 && at != comment {
					t.Errorf("%q: the comments are not aligned: %s", path, line)
				}
				comment = at
			}
			if err := understood(path, line); err != nil {
				t.Errorf("%q: %s: %v", path, line, err)
			}
		}
	}
}

// understood puts a line through the commands' own parsing.
func understood(path, line string) error {
	line, _, _ = strings.Cut(line, "#")
	line, _, _ = strings.Cut(line, " > ")
	args := shellWords(line)
	if args[0] == "sudo" {
		args = args[1:]
	}
	if filepath.Base(args[0]) != "netemctl" {
		return errNotNetemctl
	}
	root := tree()[""]
	cmd, rest, err := root.Find(args[1:])
	if err != nil {
		return err
	}
	if got := below(cmd); got != path && !strings.HasPrefix(got, path+" ") && path != "" {
		return unknownCommand(cmd, got)
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if own := cmd.Flags().Args(); cmd.HasSubCommands() && len(own) > 0 && !strings.Contains(cmd.Use, "[NAME]") {
		return unknownCommand(cmd, own[0])
	}
	if cmd.Flags().Lookup("target") != nil && cmd.Name() != "clear" && !cmd.Flags().Changed("target") && !cmd.Flags().Changed("dev") && !cmd.Flags().Changed("toxiproxy") {
		return errNoTarget
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

var errNotNetemctl = errors.New("no netemctl")

// TestUnderstood: the check of the examples can fail.
func TestUnderstood(t *testing.T) {
	for _, line := range []string{
		"  netemctl frob", "  netemctl loss 20% --frob 1 --target pg", "  netemctl loss 20 --target pg", "  netemctl loss 20%",
		"  netemctl toxic frob --target pg", "  netemctl loss --target pg", "  ls", "  netemctl loss 20% --target pg --",
	} {
		if err := understood("", line); err == nil {
			t.Errorf("%s: was understood", line)
		}
	}
}

// TestReadme puts the README's command lines through the commands' own parsing.
func TestReadme(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	lines, faults, targets := 0, 0, 0
	optional := regexp.MustCompile("[][]|[.]{3}")
	quoted := regexp.MustCompile("`([^`]+)`")
	try := func(line string) {
		if err := understood("", line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	table := ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
		switch isRow := strings.HasPrefix(line, "|"); {
		case !isRow:
			table = ""
		case table == "":
			table = first
			continue
		}
		switch line = strings.TrimPrefix(line, "$ "); {
		case table == "command" && strings.HasPrefix(first, "`") && !strings.Contains(line, `\|`):
			faults++
			try("netemctl " + optional.ReplaceAllString(strings.Trim(first, "`"), "") + " --target pg")
		case table == "`--target`":
			for _, name := range quoted.FindAllStringSubmatch(first, -1) {
				targets++
				try("netemctl loss 20% --target " + name[1])
			}
		case strings.HasPrefix(line, "netemctl "), strings.HasPrefix(line, "sudo bin/netemctl "):
			lines++
			try(line)
		}
	}
	if lines < 10 || faults < 7 || targets < 7 {
		t.Errorf("only %d command lines, %d faults and %d targets were found", lines, faults, targets)
	}
}
