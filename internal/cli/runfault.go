package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/fidelity"
	"netemd/qdisc"
)

// runFault plans, applies, or holds a fault.
func (a *app) runFault(cmd *cobra.Command, spec fault.Spec, how handling, argv []string) error {
	if how.dryRun && spec.Content != nil {
		return a.planContent(cmd.Context(), spec)
	}
	if how.dryRun {
		return a.planFault(cmd.Context(), spec)
	}
	agent, err := a.dial()
	if err != nil {
		return err
	}
	defer agent.Close()
	if len(argv) > 0 {
		return a.holdFault(cmd, agent, spec, how.verify, argv)
	}
	f, err := experiment.ApplyWhole(cmd.Context(), agent, spec)
	if err != nil {
		return hintUnsupported(err, spec)
	}
	a.warn(f.Warnings)
	if how.verify {
		return a.verifyFault(cmd, agent, f)
	}
	return a.emitFault(f)
}

// handling says what is done with a fault besides applying it.
type handling struct{ dryRun, verify bool }

// verifyFault verifies a fault that was just applied, and prints both. The fault
// stays, whatever the verdict.
func (a *app) verifyFault(cmd *cobra.Command, agent Agent, f fault.Fault) error {
	r, err := a.runVerify(cmd.Context(), agent, f.ID, fidelity.Options{})
	now := a.env.Now()
	if err != nil {
		return errors.Join(a.emitFault(f), err)
	}
	view := viewFault(f, now)
	view.Verification = &r
	err = a.emit(answer{kind: "fault", data: view, table: func(w io.Writer, s style) {
		faultText(f, now)(w, s)
		fmt.Fprintln(w)
		verifyText(r)(w, s)
	}})
	return errors.Join(err, verdictError(r))
}

// bounded is an agent whose faults end by themselves at the time that was asked for,
// however long they are held.
type bounded struct{ Agent }

func (bounded) Renew(context.Context, string, time.Duration) (fault.Fault, error) {
	return fault.Fault{}, nil
}

// holdFault keeps the fault while the user's command runs, at most for its time to live
// if it has one, and clears it on every way out. Standard output is the command's. With check the fault is verified first,
// and the command runs only beside one that does what was asked for.
func (a *app) holdFault(cmd *cobra.Command, agent Agent, spec fault.Spec, check bool, argv []string) error {
	ctx := cmd.Context()
	start := time.Now()
	holder, until := agent, "until the command ends"
	if spec.TTL > 0 {
		holder, until = bounded{agent}, until+", at most for "+qdisc.FormatDuration(spec.TTL)
	}
	h, err := experiment.Hold(ctx, holder, spec)
	if err != nil {
		return hintUnsupported(err, spec)
	}
	a.warn(h.Fault.Warnings)
	a.say("%s %s: %s, %s (engine %s: %s)",
		h.Fault.ID, h.Fault.State, words(h.Fault.Spec), until, h.Fault.Engine, h.Fault.EngineReason)
	if check {
		r, err := a.runVerify(ctx, agent, h.Fault.ID, fidelity.Options{})
		if err == nil {
			verifyText(r)(a.env.Stderr, a.style(a.env.StderrTerminal))
			err = verdictError(r)
		}
		if err != nil {
			_, clearErr := h.Release(ctx)
			a.say("the command was not run")
			return errors.Join(err, clearErr)
		}
	}
	code, runErr := a.env.Command(ctx, Command{
		Argv: argv, Stdin: a.env.Stdin, Stdout: a.env.Stdout, Stderr: a.env.Stderr, Terminal: a.env.StdinTerminal,
	})
	last, err := h.Release(ctx)
	held := err == nil && last.State == fault.Active
	switch {
	case errors.Is(err, fs.ErrNotExist) && spec.TTL > 0 && time.Since(start) >= spec.TTL:
		a.say("netemctl: %s ended by itself after --ttl %s, before the command did", last.ID, qdisc.FormatDuration(spec.TTL))
	case err != nil:
		a.say("netemctl: the fault was not held to the command's end: %s", oneLine(err))
	case last.State != fault.Active:
		a.say("netemctl: %s was %s while the command ran", last.ID, last.State)
	case !last.Spec.OnPackets():
		a.say("%s cleared", last.ID)
	default:
		a.say("%s cleared: %s", last.ID, countersText(last.Counters))
	}
	if spec.Content != nil {
		a.sayChosen(ctx, agent, last.ID)
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
