package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/client"
	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/fidelity"
	"netemd/qdisc"
)

// applyFault applies a fault that nobody holds. One that has to wait is tried at once
// first, so that what it waits for can be told.
func (a *app) applyFault(ctx context.Context, agent Agent, spec fault.Spec) (fault.Fault, error) {
	if spec.Wait > 0 {
		now := spec
		now.Wait = 0
		f, err := experiment.ApplyWhole(ctx, agent, now)
		if !errors.Is(err, fault.ErrConflict) {
			return f, err
		}
		a.sayWaiting(spec.Wait, err.Error())
	}
	return experiment.ApplyWhole(ctx, agent, spec)
}

// sayWaiting says once what is waited for.
func (a *app) sayWaiting(limit time.Duration, conflict string) {
	conflict = strings.TrimPrefix(strings.TrimPrefix(conflict, "apply: "), fault.ErrConflict.Error()+": ")
	a.say("netemctl: waiting up to %s: %s", qdisc.FormatDuration(limit), conflict)
}

// envHold is how a command that runs beside a fault knows its id, so that the faults that it
// makes itself combine with that one, and end with it.
const envHold = "NETEMD_HOLD"

// holdFault keeps the fault while the user's command runs, at most for its time to live
// if it has one, and clears it on every way out; what ends netemctl ends it, too. Standard
// output is the command's. With check the fault is verified first,
// and the command runs only beside one that does what was asked for.
func (a *app) holdFault(cmd *cobra.Command, agent Agent, spec fault.Spec, check bool, argv []string) error {
	ctx := cmd.Context()
	until := "until the command ends"
	if spec.TTL > 0 {
		until += ", at most for " + qdisc.FormatDuration(spec.TTL)
	}
	h, err := experiment.Hold(ctx, agent, spec, a.holdTeller(spec))
	if err != nil {
		return hintUnsupported(err, spec)
	}
	a.warn(h.Fault.Warnings)
	a.say("%s %s: %s, %s (engine %s: %s)",
		h.Fault.ID, h.Fault.State, words(h.Fault.Spec), until, h.Fault.Engine, h.Fault.EngineReason)
	before := uint64(0) // what a verification sent
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
		if f, err := agent.Get(ctx, h.Fault.ID); err == nil {
			before = seen(f)
		}
	}
	code, runErr := a.env.Command(ctx, Command{Argv: argv, Env: []string{envHold + "=" + h.Fault.ID}, Stdin: a.env.Stdin, Stdout: a.env.Stdout, Stderr: a.env.Stderr})
	last, err := h.Release(ctx)
	a.sayReleased(spec, last, h.Gaps(), err)
	beside := a.wentByUnimpaired(last)
	if err == nil && last.State == fault.Active { // else that says it all
		beside = a.sawNothing(last, before) || beside
	}
	if spec.Content != nil {
		beside = !a.sayChosen(ctx, agent, last.ID) || beside
	}
	if runErr != nil {
		return runErr
	}
	if code != 0 {
		return commandExit{code}
	}
	// A success that the fault did not stand beside proves nothing. Who asks for a repair or
	// a reattachment takes the time that it needs into account.
	if err != nil || last.State != fault.Active || h.Gaps().Count > 0 && !spec.Repair && !spec.Reattach || beside {
		return errInconclusive
	}
	return nil
}

// maxOpened is the share of its packets, in percent, that an impairment may have let pass
// since the engine was late, before a success beside it proves nothing: one that a loss of
// 20 % does not tell from chance in the hundreds of packets of a test.
const maxOpened = 1

// wentByUnimpaired warns, and reports whether too much passed f because the engine was
// late: of a rule, any packet that it chose.
func (a *app) wentByUnimpaired(f fault.Fault) bool {
	c := f.Counters
	if f.Spec.Content != nil && c.Opened > 0 {
		a.warn([]string{fmt.Sprintf("%d packets that the rule chose passed, the engine being late", c.Opened)})
		return true
	}
	if t := f.Total; t.Seen > c.Seen { // it was changed meanwhile
		c = t
	}
	if f.Spec.Request != nil && 100*c.Opened > maxOpened*c.Seen {
		a.warn([]string{fmt.Sprintf("%d of %d requests passed unimpaired, nothing being heard of the agent: more than %d %%", c.Opened, c.Seen, maxOpened)})
		return true
	}
	if 100*c.Opened > maxOpened*c.Seen {
		a.warn([]string{fmt.Sprintf("%d of %d packets passed unimpaired, the engine being late: more than %d %%", c.Opened, c.Seen, maxOpened)})
		return true
	}
	return false
}

// sawNothing warns, and reports whether f was aimed at packets of which none passed, but
// the first before. What a rule chose is told by sayChosen.
func (a *app) sawNothing(f fault.Fault, before uint64) bool {
	if f.Spec.Request != nil && seen(f) <= before {
		a.warn([]string{fmt.Sprintf("no request met '%s': the command ran as if there were no fault", words(f.Spec))})
		return true
	}
	if !f.Spec.OnPackets() || f.Spec.Content != nil || seen(f) > before || slices.Contains(f.CountersMissing, "seen") {
		return false
	}
	a.warn([]string{fmt.Sprintf("no packet of '%s' passed: the command ran as if there were no fault", words(f.Spec))})
	return true
}

// seen are the packets since f began, whatever changed meanwhile.
func seen(f fault.Fault) uint64 { return max(f.Counters.Seen, f.Total.Seen) }

// sayReleased says how the hold of a fault ended.
func (a *app) sayReleased(spec fault.Spec, last fault.Fault, gaps experiment.Gaps, err error) {
	switch {
	case err != nil:
		a.say("netemctl: the fault was not held to the command's end: %s", oneLine(err))
	case last.State == fault.Expired && spec.TTL > 0:
		a.say("netemctl: %s ended by itself after --ttl %s, before the command did", last.ID, qdisc.FormatDuration(spec.TTL))
	case last.State != fault.Active:
		a.say("netemctl: %s %s while the command ran", last.ID, became(last.State))
	case last.Spec.Request != nil:
		a.say("%s cleared: %s", last.ID, requestsText(last.Counters))
	case !last.Spec.OnPackets():
		a.say("%s cleared", last.ID)
	default:
		a.say("%s cleared: %s", last.ID, countersText(last.Counters))
	}
	if gaps.Count > 0 {
		a.say("netemctl: %s was out of force for %s in all while the command ran", last.ID, qdisc.FormatDuration(gaps.Total.Round(time.Millisecond)))
	}
}

// holdTeller says at once what happens to a fault while it is held.
func (a *app) holdTeller(spec fault.Spec) func(fault.Event, string) {
	waiting := false
	return func(e fault.Event, detail string) {
		if e.Kind == client.Waiting {
			if !waiting {
				a.sayWaiting(spec.Wait, detail)
			}
			waiting = true
			return
		}
		if text := holdText(e, detail); text != "" {
			a.say("netemctl: %s", text)
		}
	}
}

// holdText is what happened to a fault that is held, empty for what need not be said.
func holdText(e fault.Event, detail string) string {
	id := e.Fault.ID
	switch e.Kind {
	case "down", "ready", "skipped", "failed":
		return id + ": " + strikeText(e, e.Time)
	case "lost", "drifted":
		return fmt.Sprintf("%s is %s while the command runs%s%s", id, e.Kind, because(e.Fault.Reason), willRepair(e.Fault))
	case "repaired":
		return id + " is in force again"
	case "reattached":
		return id + " is in force again, where its target is now"
	case "step":
		return fmt.Sprintf("%s: %s", id, stepWords(e.Fault))
	case "changed":
		return fmt.Sprintf("%s was changed while the command runs: %s", id, words(e.Fault.Spec))
	case "cleared":
		if detail != "" {
			return fmt.Sprintf("%s was cleared while the command runs: %s", id, oneLine(errors.New(detail)))
		}
		return id + " was cleared by somebody else while the command runs"
	case "expired":
		return id + " expired while the command runs"
	case client.Silent:
		return oneLine(errors.New(detail)) + "; the command goes on"
	case client.Answers:
		return "the agent answers again"
	case client.Broken:
		return "the connection to the agent broke; trying to hold " + id + " over another one"
	case client.Resumed:
		return id + " is held again"
	case client.Unrenewed:
		return fmt.Sprintf("the time to live of %s was not renewed: %s", id, oneLine(errors.New(detail)))
	case client.Gone:
		return fmt.Sprintf("%s is no longer held while the command runs: %s", id, oneLine(errors.New(detail)))
	}
	return ""
}

func willRepair(f fault.Fault) string {
	switch {
	case f.Spec.Reattach && f.State == fault.Lost:
		return "; its target is looked for"
	case f.Spec.Repair:
		return ", and is put back"
	}
	return ""
}

// became says that a fault came to a state: "was lost", "expired".
func became(s fault.State) string {
	if s == fault.Expired {
		return string(s)
	}
	return "was " + string(s)
}
