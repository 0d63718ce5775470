package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/experiment"
	"netemd/internal/fault"
)

// runFault plans, applies, or holds a fault.
func (a *app) runFault(cmd *cobra.Command, spec fault.Spec, dryRun bool, argv []string) error {
	if dryRun {
		return a.planFault(spec)
	}
	agent, err := a.dial()
	if err != nil {
		return err
	}
	defer agent.Close()
	if len(argv) > 0 {
		return a.holdFault(cmd, agent, spec, argv)
	}
	f, err := experiment.ApplyWhole(cmd.Context(), agent, spec)
	if err != nil {
		return err
	}
	a.warn(f.Warnings)
	return a.emitFault(f)
}

// holdFault keeps the fault while the user's command runs, and clears it on every
// way out. Standard output is the command's.
func (a *app) holdFault(cmd *cobra.Command, agent Agent, spec fault.Spec, argv []string) error {
	ctx := cmd.Context()
	h, err := experiment.Hold(ctx, agent, spec)
	if err != nil {
		return err
	}
	a.warn(h.Fault.Warnings)
	a.say("%s %s: %s, until the command ends (engine %s: %s)",
		h.Fault.ID, h.Fault.State, words(h.Fault.Spec), h.Fault.Engine, h.Fault.EngineReason)
	code, runErr := a.env.Command(ctx, Command{
		Argv: argv, Stdin: a.env.Stdin, Stdout: a.env.Stdout, Stderr: a.env.Stderr, Terminal: a.env.StdinTerminal,
	})
	last, err := h.Release(ctx)
	held := err == nil && last.State == fault.Active
	switch {
	case err != nil:
		a.say("netemctl: the fault was not held to the command's end: %s", oneLine(err))
	case last.State != fault.Active:
		a.say("netemctl: %s was %s while the command ran", last.ID, last.State)
	case last.Spec.Packet == nil:
		a.say("%s cleared", last.ID)
	default:
		a.say("%s cleared: %s", last.ID, countersText(last.Counters))
	}
	if runErr != nil {
		return runErr
	}
	if code != 0 {
		return commandExit{code}
	}
	if !held { // a success that the fault did not stand beside proves nothing
		return errInconclusive
	}
	return nil
}

// emitFault prints one fault.
func (a *app) emitFault(f fault.Fault) error {
	now := a.env.Now()
	return a.emit(answer{kind: "fault", data: viewFault(f, now), table: faultText(f, now)})
}

// ends says when a fault ends, in the user's time: "21:44:10 (in 10m)".
func ends(f fault.Fault, now time.Time) string {
	local := f.Expires.In(now.Location())
	layout := "15:04:05"
	if local.YearDay() != now.YearDay() || local.Year() != now.Year() {
		layout = "2006-01-02 15:04:05"
	}
	left := f.Expires.Sub(now)
	if left <= 0 {
		return local.Format(layout) + " (now)"
	}
	return fmt.Sprintf("%s (in %s)", local.Format(layout), short(left))
}
