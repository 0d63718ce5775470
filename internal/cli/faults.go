package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

func (a *app) change() *cobra.Command {
	var want asked
	cmd := &cobra.Command{
		Use: "change ID [flags]", Short: "Change a packet fault in place",
		Long: `Change a packet fault in place, in one replace that loses nothing. What is not
named stays as it is, also with --tc, which replaces the words that it has; 0 takes an
impairment away. --loss, --loss-state and --loss-gemodel replace each other.`,
		Args: arguments(1, "ID --loss 5%"), DisableFlagsInUseLine: true, ValidArgsFunction: a.completeFaults,
	}
	i := bind(cmd, &want)
	i.all()
	i.common()
	i.done(true)
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		if !want.says() {
			return fault.WithHint(usageError{errors.New("change: nothing to change")}, "name what, such as --loss 5%")
		}
		agent, err := a.dial()
		if err != nil {
			return err
		}
		defer agent.Close()
		patch, spec, err := a.changes(cmd.Context(), agent, args[0], want)
		if err != nil {
			return err
		}
		f, err := agent.Change(cmd.Context(), args[0], patch)
		if err != nil {
			return hintUnsupported(err, spec)
		}
		a.warn(f.Warnings)
		return a.emitFault(f)
	})
	return cmd
}

// changes is what has to change in a fault, and what that makes of it. It refuses to take away all that the
// fault does. What cannot be known here, the agent decides.
func (a *app) changes(ctx context.Context, agent Agent, id string, want asked) (qdisc.Patch, fault.Spec, error) {
	var base qdisc.Netem
	f, err := agent.Get(ctx, id)
	if err == nil && f.Spec.Content != nil {
		return qdisc.Patch{}, f.Spec, fault.WithHint(
			usageError{fmt.Errorf("change %s: '%s' does not change in place, it is counted from its beginning", id, words(f.Spec))},
			"clear it, 'netemctl clear "+id+"', and make another",
		)
	}
	known := err == nil && f.Spec.Packet != nil
	if known {
		base = *f.Spec.Packet
	}
	patch, notes, err := want.resolve(ctx, base)
	switch {
	case err != nil && (known || !errors.Is(err, errNothingToSize)):
		return patch, f.Spec, err
	case known && patch.Apply(base).IsZero():
		return patch, f.Spec, fault.WithHint(
			usageError{fmt.Errorf("change %s: nothing would be left of %s", id, base)}, "take it away: netemctl clear "+id,
		)
	}
	for _, n := range notes {
		a.say("%s", n)
	}
	spec := f.Spec
	if known {
		spec.Packet = new(patch.Apply(base))
	}
	return patch, spec, nil
}

func (a *app) list() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the faults", Args: arguments(0, ""),
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, _ []string) error {
			fs, err := agent.List(cmd.Context())
			if err != nil {
				return err
			}
			a.warn(notInForce(fs))
			return a.emitFaults("faults", fs, "no fault")
		}),
	}
}

// faultsData is what list and clear answer.
type faultsData struct {
	Faults []faultView `json:"faults"`
}

func (a *app) emitFaults(kind string, fs []fault.Fault, none string) error {
	now := a.env.Now()
	data := faultsData{Faults: []faultView{}}
	for _, f := range fs {
		data.Faults = append(data.Faults, viewFault(f, now))
	}
	return a.emit(answer{kind: kind, data: data, lines: anys(data.Faults), table: func(w io.Writer, s style) {
		if len(fs) == 0 {
			a.say("%s", none)
			return
		}
		t := table{head: []string{"ID", "TARGET", "STATE", "ENGINE", "FAULT", "SEEN", "LOST", "OWNER", "ENDS"}, right: map[int]bool{5: true, 6: true}}
		for _, f := range fs {
			v := viewStats(f)
			seen, lost := countText(v.Seen), countText(v.Lost)
			t.add(s.bold(f.ID), subject(f.Spec), paintState(s, f.State), string(f.Engine), words(f.Spec), seen, lost, dash(f.Spec.Owner), ends(f, now)+heldWord(f))
		}
		t.write(w, s)
	}})
}

// notInForce says why faults are not in force, those whose reason is known.
func notInForce(fs []fault.Fault) []string {
	var words []string
	for _, f := range fs {
		if f.Reason != "" && (f.State == fault.Lost || f.State == fault.Drifted) {
			words = append(words, fmt.Sprintf("%s is %s: %s", f.ID, f.State, f.Reason))
		}
	}
	return words
}

// heldWord says beside the time at which a fault ends that it may be sooner.
func heldWord(f fault.Fault) string {
	if f.Token == 0 {
		return ""
	}
	return ", held by a client"
}

func (a *app) show() *cobra.Command {
	return &cobra.Command{
		Use: "show ID", Short: "Show a fault with its counters",
		Long: `Show a fault with its counters. They count all packets that it was aimed at since it
was applied or last changed, also those that a verification sent.`,
		Args: arguments(1, "ID"), ValidArgsFunction: a.completeFaults,
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			f, err := agent.Get(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			a.warn(f.Warnings)
			return a.emitFault(f)
		}),
	}
}

func (a *app) renew() *cobra.Command {
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "renew ID [--ttl TIME]", Short: "Give a fault its time to live again, from now", DisableFlagsInUseLine: true,
		Args: arguments(1, "ID"), ValidArgsFunction: a.completeFaults,
		RunE: a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
			f, err := agent.Renew(cmd.Context(), args[0], ttl)
			if err != nil {
				return err
			}
			return a.emitFault(f)
		}),
	}
	cmd.Flags().Var(typed(&ttl, "TIME", positive, nil), "ttl", "time to live from now (default the fault's own)")
	return cmd
}

func (a *app) clear() *cobra.Command {
	var name string
	var spot target.Selector
	var all bool
	cmd := &cobra.Command{
		Use: "clear ID | clear --target NAME | clear --dev DEV [--netns NAME] | clear --all", Short: "Take faults away", DisableFlagsInUseLine: true,
		Long: `Take faults away: one by its id, all of a target or a device, or all. It is no error
when the fault has ended, or the target or the device has no fault; an id that this
agent never gave is one (exit code 1). What a hold still holds leaves when it is due.`,
		ValidArgsFunction: a.completeFaults,
	}
	cmd.Flags().Var(once(&name, "NAME", wantTarget), "target", "clear all faults of the target `NAME`")
	a.deviceFlags(cmd, &spot, "clear all faults that were aimed at the device `DEV`")
	cmd.Flags().BoolVar(&all, "all", false, "clear all faults")
	a.completeTargets(cmd)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		given := len(args)
		for _, is := range []bool{name != "", spot.Device != "", all} {
			if is {
				given++
			}
		}
		switch {
		case given != 1:
			return fault.WithHint(errors.New("clear: want exactly one of ID, --target NAME, --dev DEV and --all"), "list them with: netemctl list")
		case spot.Namespace != "" && spot.Device == "":
			return errors.New("clear: --netns needs --dev")
		}
		return notEmpty(cmd, args, "ID")
	}
	cmd.RunE = a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
		what := fault.Selector{Target: name, All: all}
		if spot.Device != "" {
			what.Device = spot.Name()
		}
		if len(args) == 1 {
			what.ID = args[0]
		}
		fs, err := agent.Clear(cmd.Context(), what)
		if err != nil {
			return hintClear(err, what)
		}
		if a.output != outTable {
			return a.emitFaults("cleared", fs, "")
		}
		switch {
		case len(fs) == 0 && what.ID != "":
			a.say("%s: already gone", what.ID)
		case len(fs) == 0:
			a.say("nothing to clear")
		}
		s := a.style(a.env.StdoutTerminal)
		for _, f := range fs {
			fmt.Fprintf(a.out, "%s cleared: %s%s\n", s.bold(f.ID), words(f.Spec), queuedText(f))
			if f.Reason != "" {
				a.say("netemctl: %s was not in force at its end: %s", f.ID, f.Reason)
			}
		}
		return nil
	})
	return cmd
}

// hintClear says what to do about another's fault.
func hintClear(err error, what fault.Selector) error {
	if !errors.Is(err, fault.ErrConflict) && !errors.Is(err, fault.ErrDenied) {
		return err
	}
	command := "sudo netemctl clear "
	switch {
	case what.ID != "":
		command += what.ID
	case what.Target != "":
		command += "--target " + what.Target
	case what.Device != "":
		device, namespace, _ := strings.Cut(what.Device, "@")
		command += "--dev " + device
		if namespace != "" {
			command += " --netns " + namespace
		}
	default:
		command += "--all"
	}
	return fault.WithHint(err, "its owner or root ends it, on the agent's machine: "+command)
}
