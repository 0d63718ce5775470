package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/internal/fidelity"
)

// runFault plans, applies, or holds a fault.
func (a *app) runFault(cmd *cobra.Command, spec fault.Spec, how handling, argv []string) error {
	if how.dryRun && spec.Content != nil {
		return a.planContent(cmd.Context(), spec)
	}
	if how.dryRun && spec.Schedule != nil {
		return a.planSchedule(cmd.Context(), spec)
	}
	if how.dryRun && spec.Outage != nil {
		return a.planOutage(spec)
	}
	if how.dryRun && spec.Request != nil {
		return a.planRequest(cmd.Context(), spec)
	}
	if how.dryRun {
		return a.planFault(cmd.Context(), spec)
	}
	if len(argv) > 0 { // before there is a fault
		if code, err := a.env.FindCommand(argv[0]); err != nil {
			a.say("netemctl: %s: %v", argv[0], err)
			return commandExit{code}
		}
	}
	agent, err := a.dial()
	if err != nil {
		return err
	}
	defer agent.Close()
	spec.Within = a.env.Getenv(envHold)
	if len(argv) > 0 {
		return a.holdFault(cmd, agent, spec, how.verify, argv)
	}
	f, err := a.applyFault(cmd.Context(), agent, spec)
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
