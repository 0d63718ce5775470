package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/client"
	"netemd/internal/fault"
)

// TestHoldTellsAtOnce: what happens to the fault is told while the command runs.
func TestHoldTellsAtOnce(t *testing.T) {
	for _, c := range []struct {
		kind  string
		state fault.State
		words string
		want  string
	}{
		{"lost", fault.Lost, "", "f1 is lost while the command runs, and is put back"},
		{"drifted", fault.Drifted, "", "f1 is drifted while the command runs, and is put back"},
		{"repaired", fault.Active, "", "f1 is in force again"},
		{"changed", fault.Active, "", "f1 was changed while the command runs: loss 20% to pg"},
		{"cleared", fault.Cleared, "", "f1 was cleared by somebody else while the command runs"},
		{"cleared", fault.Cleared, "the agent is stopping", "f1 was cleared while the command runs: the agent is stopping"},
		{"expired", fault.Expired, "", "f1 expired while the command runs"},
		{client.Silent, fault.Active, "no\nanswer", "no; answer; the command goes on"},
		{client.Answers, fault.Active, "", "the agent answers again"},
		{client.Broken, fault.Active, "", "the connection to the agent broke"},
		{client.Resumed, fault.Active, "", "f1 is held again"},
		{client.Unrenewed, fault.Active, "why", "the time to live of f1 was not renewed: why"},
		{client.Gone, fault.Active, "the agent went", "f1 is no longer held while the command runs: the agent went"},
	} {
		w := world{agent: newFakeAgent()}
		told := ""
		w.meanwhile = func() {
			w.stderr.Reset()
			w.agent.happen(c.kind, c.state, c.words)
			told = w.stderr.String()
		}
		if code := w.run(t.Context(), "loss", "20%", "--target", "pg", "--repair", "--", "x"); code != exitDone || !w.agent.repaired {
			t.Errorf("%s: exit code %d, repair %v", c.kind, code, w.agent.repaired)
		}
		if want := "netemctl: " + c.want; !strings.HasPrefix(told, want) || strings.Count(told, "\n") != 1 {
			t.Errorf("%s: told %q, want %q", c.kind, told, want)
		}
	}
}

// TestHoldNotToTheEnd: what ended the fault before the command makes its success worth
// nothing, and its failure stays its own.
func TestHoldNotToTheEnd(t *testing.T) {
	for _, c := range []struct {
		name    string
		ended   fault.State
		heldErr error
		want    string
	}{
		{"cleared", fault.Cleared, nil, "f1 was cleared while the command ran"},
		{"expired", fault.Expired, nil, "f1 expired while the command ran"},
		{"agent", "", fmt.Errorf("%w: it went", client.ErrUnreachable), "not held to the command's end: agent unreachable: it went"},
	} {
		for code, want := range map[int]int{0: exitInconclusive, 9: 9} {
			w := world{agent: &fakeAgent{ended: c.ended, heldErr: c.heldErr}, code: code}
			if got := w.run(t.Context(), "loss", "20%", "--target", "pg", "--", "x"); got != want || !strings.Contains(w.stderr.String(), c.want) {
				t.Errorf("%s, command %d: exit code %d, told %q", c.name, code, got, w.stderr.String())
			}
		}
	}
}

// TestSuccessBesideNoFault: what was not impaired, or not chosen, proves nothing either.
func TestSuccessBesideNoFault(t *testing.T) {
	for _, c := range []struct {
		line           string
		opened, chosen uint64
		want           int
		said           string
	}{
		{"loss 20% --target pg", 0, 0, exitDone, ""},
		{"loss 20% --target pg", 10, 0, exitDone, ""},
		{"loss 20% --target pg", 11, 0, exitInconclusive, "11 of 1000 packets passed unimpaired, the engine being late: more than 1 %"},
		{"drop syn --target pg", 0, 2, exitDone, ""},
		{"drop syn --target pg", 1, 2, exitInconclusive, "1 packets that the rule chose passed"},
		{"drop syn --target pg", 0, 0, exitInconclusive, "no packet was chosen"},
	} {
		for code, want := range map[int]int{0: c.want, 9: 9} {
			w := world{agent: &fakeAgent{matched: 1000, opened: c.opened, log: chosenLog(int(c.chosen))}, code: code}
			if got := w.run(t.Context(), append(strings.Fields(c.line), "--", "x")...); got != want || !strings.Contains(w.stderr.String(), c.said) {
				t.Errorf("%+v, command %d: exit code %d, told %q", c, code, got, w.stderr.String())
			}
		}
	}
}

// TestSuccessBesideNoPacket: a fault that met no packet while the command ran proves nothing,
// however many a verification sent before.
func TestSuccessBesideNoPacket(t *testing.T) {
	const said = "no packet of '"
	for _, c := range []struct {
		line    string
		seen    uint64
		still   bool // only the verification's packets passed
		missing []string
		total   uint64 // before it was changed, too
		want    int
	}{
		{"loss 20% --target pg", 0, false, nil, 0, exitInconclusive},
		{"loss 20% --target pg", 1, false, nil, 0, exitDone},
		{"loss 20% --target pg", 0, false, []string{"seen"}, 0, exitDone},
		{"loss 20% --target pg", 0, false, nil, 5, exitDone},
		{"loss 20% --target pg --verify", 1000, true, nil, 0, exitInconclusive},
		{"loss 20% --target pg --verify", 1000, false, nil, 0, exitDone},
		{"toxic down --target pg", 0, false, nil, 0, exitDone},
	} {
		for code, want := range map[int]int{0: c.want, 9: 9} {
			w := world{agent: &fakeAgent{matched: c.seen, missing: c.missing, still: c.still, total: c.total}, code: code}
			got := w.run(t.Context(), append(strings.Fields(c.line), "--", "x")...)
			if told := strings.Contains(w.stderr.String(), said); got != want || told != (c.want != exitDone) {
				t.Errorf("%+v, command %d: exit code %d, want %d, told %q", c, code, got, want, w.stderr.String())
			}
		}
	}
}

// TestNoCommandNoFault: a command that cannot be run is refused before there is a fault.
func TestNoCommandNoFault(t *testing.T) {
	for _, line := range []string{"loss 20% --target pg -- x", "drop syn --target pg -- x", "toxic down --target pg -- x"} {
		w := world{agent: newFakeAgent(), notFound: errors.New("command not found")}
		code := w.run(t.Context(), strings.Fields(line)...)
		if code != exitNotFound || w.agent.next != 0 || w.commands != nil || w.stderr.String() != "netemctl: x: command not found\n" {
			t.Errorf("%s: exit code %d, %d faults, ran %v, told %q", line, code, w.agent.next, w.commands, w.stderr.String())
		}
	}
	w := world{agent: newFakeAgent(), notFound: errors.New("command not found")}
	if code := w.run(t.Context(), "loss", "20%", "--target", "pg", "--dry-run", "--", "x"); code != exitDone {
		t.Errorf("a plan: exit code %d, told %q", code, w.stderr.String())
	}
}

// TestHoldGaps: a fault that was put back is told with how long it was away.
func TestHoldGaps(t *testing.T) {
	for line, want := range map[string]int{"loss 20% --target pg --repair -- x": exitDone, "loss 20% --target pg -- x": exitInconclusive} {
		synctest.Test(t, func(t *testing.T) {
			w := world{agent: newFakeAgent()}
			w.meanwhile = func() {
				w.agent.happen("lost", fault.Lost, "")
				time.Sleep(1200 * time.Millisecond)
				w.agent.happen("repaired", fault.Active, "")
			}
			if code := w.run(t.Context(), strings.Fields(line)...); code != want || !strings.Contains(w.stderr.String(), "f1 was out of force for 1.2s in all") {
				t.Errorf("%s: exit code %d, told %q", line, code, w.stderr.String())
			}
		})
	}
}

// TestWaitingIsToldOnce: however many faults are in the way, one line is enough.
func TestWaitingIsToldOnce(t *testing.T) {
	w := world{agent: &fakeAgent{waits: 50, matched: 1}}
	if code := w.run(t.Context(), "loss", "20%", "--target", "pg", "--wait", "1m", "--", "x"); code != exitDone || strings.Count(w.stderr.String(), "waiting up to 1m") != 1 {
		t.Errorf("exit code %d, told %q", code, w.stderr.String())
	}
}

// TestInterruptedWhileWaiting leaves nothing.
func TestInterruptedWhileWaiting(t *testing.T) {
	w := world{agent: &fakeAgent{waits: 99}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if code := w.run(ctx, "loss", "20%", "--target", "pg", "--wait", "1m", "--", "x"); code != exitInterrupted || w.commands != nil || len(w.agent.faults) != 0 {
		t.Errorf("exit code %d, ran %v, left %v", code, w.commands, w.agent.faults)
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{fault.ErrDenied, exitDenied}, {fault.ErrProtected, exitDenied}, {fault.ErrMissed, exitError}, {fault.ErrBusy, exitError}, {fault.ErrConflict, exitError},
		{client.ErrUnreachable, exitUnreachable}, {errors.ErrUnsupported, exitUnsupported},
	} {
		if got := exitCode(t.Context(), fmt.Errorf("x: %w", c.err)); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// TestHoldIsNamedToTheCommand: the command finds the fault that it runs beside, and a fault
// that it makes says so.
func TestHoldIsNamedToTheCommand(t *testing.T) {
	w := world{agent: newFakeAgent(), env: map[string]string{envHold: "f7"}}
	if code := w.run(t.Context(), "loss", "20%", "--target", "pg", "--", "x"); code != exitDone || len(w.given) != 1 || w.given[0] != "NETEMD_HOLD=f1" {
		t.Errorf("exit code %d, the command was given %q", code, w.given)
	}
	for _, args := range [][]string{{"loss", "20%", "--target", "pg"}, {"drop", "syn", "--target", "pg"}, {"toxic", "down", "--target", "pg"}} {
		if code := w.run(t.Context(), args...); code != exitDone {
			t.Errorf("%v: exit code %d: %s", args, code, w.stderr.String())
		}
		if f := w.agent.faults[len(w.agent.faults)-1]; f.Spec.Within != "f7" {
			t.Errorf("%v: within %q", args, f.Spec.Within)
		}
	}
}

// TestComparedWithin: so do those of a comparison.
func TestComparedWithin(t *testing.T) {
	w := world{agent: newFakeAgent(), env: map[string]string{envHold: "f7"}}
	within := map[string]bool{}
	w.agent.during = func() {
		for _, f := range w.agent.faults {
			within[f.Spec.Within] = true
		}
	}
	if code := w.run(t.Context(), "compare", "--target", "pg", "-n", "20"); code != exitDone && code != exitInconclusive {
		t.Fatalf("exit code %d: %s", code, w.stderr.String())
	}
	if len(within) != 1 || !within["f7"] {
		t.Errorf("within %v", within)
	}
}

// TestUnimpairedOverAChange: what passed before a change counts against the whole.
func TestUnimpairedOverAChange(t *testing.T) {
	for _, c := range []struct {
		now, total fault.Counters
		want       bool
	}{
		{fault.Counters{Seen: 10}, fault.Counters{Seen: 1000, Opened: 500}, true},
		{fault.Counters{Seen: 10, Opened: 5}, fault.Counters{Seen: 1000, Opened: 5}, false},
		{fault.Counters{Seen: 10, Opened: 5}, fault.Counters{}, true},
	} {
		w := world{agent: newFakeAgent()}
		a := &app{env: Env{Stderr: &w.stderr}}
		if got := a.wentByUnimpaired(fault.Fault{Counters: c.now, Total: c.total}); got != c.want {
			t.Errorf("%+v of %+v: %t", c.now, c.total, got)
		}
	}
}
