package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/strictyaml"
)

// app is one run of netemctl.
type app struct {
	env    Env
	out    *sink // env.Stdout, but for a command of the user's
	at     client.Endpoint
	output string
	// positional reads the value that a command takes as its argument, so that a
	// negative one, which looks like a flag, is refused in the value's own words.
	positional map[*cobra.Command]func(string) error
}

// ran marks an error as coming from a command that was understood; every other
// error of cobra is one of usage.
type ran struct{ error }

func (e ran) Unwrap() error { return e.error }

// Run runs one command line and returns its exit code. When ctx ends, what was in
// progress is undone first.
func Run(ctx context.Context, env Env) int {
	working, stop := context.WithCancel(ctx)
	defer stop()
	a := &app{env: env, out: &sink{w: env.Stdout, failed: stop}, positional: map[*cobra.Command]func(string) error{}}
	root := a.root()
	root.SetArgs(env.Args)
	err := root.ExecuteContext(working)
	if out := a.out.err; out != nil && (err == nil || errors.Is(err, out) || errors.Is(err, context.Canceled)) {
		err = ran{fmt.Errorf("standard output: %w", out)}
	}
	if r := (ran{}); err != nil && !errors.As(err, &r) {
		err = usage(root, err)
	}
	code := exitCode(ctx, err)
	a.complain(err, ctx.Err() != nil)
	return code
}

// usage makes cobra's errors one line and a hint.
func usage(root *cobra.Command, err error) error {
	text, rest, _ := strings.Cut(err.Error(), "\n")
	if h := fault.HintOf(err); h != "" {
		return fault.WithHint(usageError{errors.New(text)}, h)
	}
	hint := "see 'netemctl --help'"
	if _, suggestions, ok := strings.Cut(rest, "Did you mean this?"); ok {
		hint = "did you mean " + strings.Join(strings.Fields(suggestions), " or ") + "?"
	}
	return fault.WithHint(usageError{errors.New(text)}, hint)
}

// complain prints an error in one line, and its hint in a second.
func (a *app) complain(err error, interrupted bool) {
	var command commandExit
	switch {
	case err == nil || errors.As(err, &command):
		return
	case interrupted:
		fmt.Fprintln(a.env.Stderr, "netemctl: interrupted")
		if text := leftBehind(err); text != "" {
			fmt.Fprintln(a.env.Stderr, "netemctl:", text)
		}
		return
	}
	for _, line := range errorLines(err) {
		fmt.Fprintln(a.env.Stderr, "netemctl:", line)
	}
	if h := fault.HintOf(err); h != "" {
		fmt.Fprintln(a.env.Stderr, "hint:", h)
	}
}

// errorLines are an error in one line, but for the mistakes of a file, which are each in
// a line that begins with its place.
func errorLines(err error) []string {
	mistakes, rest := strictyaml.Of(unwrappedRan(err))
	if first := (*strictyaml.Mistake)(nil); !errors.As(err, &first) || rest != nil {
		return []string{oneLine(err)}
	}
	lines := make([]string, len(mistakes))
	for i, m := range mistakes {
		lines[i] = m.Error()
	}
	return lines
}

func unwrappedRan(err error) error {
	if r := (ran{}); errors.As(err, &r) {
		return r.Unwrap()
	}
	return err
}

// leftBehind is what went wrong while an interrupted command was undone.
func leftBehind(err error) string {
	var kept []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		if line != context.Canceled.Error() && !strings.HasSuffix(line, " signal received") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "; ")
}

func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

// do wraps a command's body.
func (a *app) do(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.checkOutput(cmd); err != nil {
			return ran{err}
		}
		if err := f(cmd, args); err != nil {
			return ran{err}
		}
		return nil
	}
}

// withAgent wraps a command's body that needs the agent.
func (a *app) withAgent(
	f func(cmd *cobra.Command, agent Agent, args []string) error,
) func(*cobra.Command, []string) error {
	return a.do(func(cmd *cobra.Command, args []string) error {
		agent, err := a.dial()
		if err != nil {
			return err
		}
		defer agent.Close()
		return f(cmd, agent, args)
	})
}

// flagError turns pflag's errors into the words of the values.
func (a *app) flagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	see := seeHelp(cmd)
	switch {
	case errors.As(err, &unknown):
		value := "-" + unknown.GetSpecifiedShortnames()
		if parse := a.positional[cmd]; parse != nil && looksNegative(value) {
			if err := parse(value); err != nil {
				return fault.WithHint(err, see)
			}
		}
	case errors.As(err, &invalid):
		return fault.WithHint(named("--"+invalid.GetFlag().Name, errors.Unwrap(invalid), invalid.GetValue()), see)
	}
	return fault.WithHint(err, see)
}

func seeHelp(cmd *cobra.Command) string { return fmt.Sprintf("see '%s --help'", cmd.CommandPath()) }

func looksNegative(s string) bool {
	return len(s) > 1 && s[0] == '-' && (s[1] >= '0' && s[1] <= '9' || s[1] == '.')
}

// group is a command that only has commands. Without one of them it is an error,
// but for netemctl itself.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	// of "probe foo --target x" it is foo that is wrong
	cmd.FParseErrWhitelist.UnknownFlags = cmd.Name() != "netemctl"
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return unknownCommand(cmd, args[0])
		case !cmd.HasParent():
			return cmd.Help()
		}
		cmd.SetOut(cmd.ErrOrStderr())
		if err := cmd.Help(); err != nil {
			return err
		}
		return fault.WithHint(fmt.Errorf("%s: want one of its commands", below(cmd)), "known: "+strings.Join(known(cmd), ", "))
	}
	return cmd
}

// unknownCommand says what is like name, or else what there is.
func unknownCommand(cmd *cobra.Command, name string) error {
	err := fmt.Errorf("unknown command %q", name)
	if path := below(cmd); path != "" {
		err = fmt.Errorf("%s: unknown command %q", path, name)
	}
	if near := cmd.SuggestionsFor(name); name != "" && len(near) > 0 {
		return fault.WithHint(err, "did you mean "+strings.Join(near, " or ")+"?")
	}
	return fault.WithHint(err, "known: "+strings.Join(known(cmd), ", "))
}

// known are the names of a command's commands, with the topics of the help.
func known(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() || c.IsAdditionalHelpTopicCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// below is a command's path without the program's name.
func below(cmd *cobra.Command) string {
	_, path, _ := strings.Cut(cmd.CommandPath(), " ")
	return path
}

// arguments says how many arguments a command takes, and how it is written. A
// command after "--" is refused.
func arguments(n int, form string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(dashed(cmd, args)) > 0 {
			return fmt.Errorf("%s: takes no command after --", below(cmd))
		}
		if err := counted(cmd, args, n, form); err != nil {
			return err
		}
		return notEmpty(cmd, args, form)
	}
}

// notEmpty refuses an argument that says nothing, as of an unset variable of a shell.
func notEmpty(cmd *cobra.Command, args []string, form string) error {
	if !slices.Contains(args, "") {
		return nil
	}
	return fault.WithHint(fmt.Errorf("%s: an argument is empty", below(cmd)), fmt.Sprintf("write: %s %s", cmd.CommandPath(), form))
}

// argumentsAndCommand is arguments for a command that takes "-- CMD". Standard
// output is CMD's then, so there is no other form of it.
func (a *app) argumentsAndCommand(n int, form string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := counted(cmd, args, n, form); err != nil {
			return err
		}
		argv := dashed(cmd, args)
		switch {
		case cmd.ArgsLenAtDash() >= 0 && (len(argv) == 0 || argv[0] == ""):
			return wantCommand(cmd, form)
		case len(argv) > 0 && a.output != outTable && !cmd.Flags().Changed("dry-run"):
			return fault.WithHint(
				fmt.Errorf("%s: with -- CMD standard output is the command's, so there is no -o %s", below(cmd), a.output), "leave -o out",
			)
		}
		return nil
	}
}

// wantCommand says that there is no command after "--".
func wantCommand(cmd *cobra.Command, form string) error {
	return fault.WithHint(fmt.Errorf("%s: want a command after --", below(cmd)), fmt.Sprintf("write: %s %s", cmd.CommandPath(), form))
}

// counted refuses another number of arguments before "--" than n.
func counted(cmd *cobra.Command, args []string, n int, form string) error {
	own := args[:len(args)-len(dashed(cmd, args))]
	if len(own) == n {
		return nil
	}
	what := "takes no argument"
	if n > 0 {
		what = "takes one argument"
	}
	return fault.WithHint(
		fmt.Errorf("%s: %s, not %d", below(cmd), what, len(own)),
		strings.TrimSpace(fmt.Sprintf("write: %s %s", cmd.CommandPath(), form)),
	)
}

// dashed returns the arguments after "--", nil without it.
func dashed(cmd *cobra.Command, args []string) []string {
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		return args[at:]
	}
	return nil
}

// warn prints warnings for people.
func (a *app) warn(warnings []string) {
	for _, w := range warnings {
		fmt.Fprintln(a.env.Stderr, a.style(a.env.StderrTerminal).warning("warning:"), w)
	}
}

// say prints talk for people.
func (a *app) say(format string, args ...any) { fmt.Fprintf(a.env.Stderr, format+"\n", args...) }

// words says a fault's spec in one phrase.
func words(s fault.Spec) string {
	if s.Outage != nil {
		return outageWords(*s.Outage)
	}
	what := ""
	switch {
	case s.Content != nil:
		what = ruleWords(*s.Content)
	case s.Schedule != nil:
		what = scheduleWords(*s.Schedule)
		if s.Packet != nil {
			what += " (now " + s.Packet.String() + ")"
		}
	case s.Request != nil:
		return s.Request.String() + " on the http-proxy of " + s.Target
	case s.Profile != "":
		what = "profile " + s.Profile
	case s.Packet != nil:
		what = s.Packet.String()
		if s.PacketFrom != nil {
			what += ", back " + s.PacketFrom.String() + ","
		}
		if s.Packet.Loss == 100 {
			what = strings.Replace(what, "loss 100%", "partition (loss 100%)", 1)
		}
	default:
		parts := make([]string, len(s.Toxics))
		for i, t := range s.Toxics {
			parts[i] = toxicWords(t)
		}
		what = strings.Join(parts, ", ")
	}
	preposition := "to "
	if s.OnPackets() {
		switch s.Direction {
		case fault.From:
			preposition = "from "
		case fault.Both:
			preposition = "to and from "
		}
		if s.Selector != nil {
			return what + " on " + deviceWay(s.Direction) + " of " + s.Selector.String() + countWords(s.Content)
		}
	} else {
		preposition = "on the proxy of "
	}
	return what + " " + preposition + s.Target + countWords(s.Content)
}
