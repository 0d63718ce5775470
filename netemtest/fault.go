package netemtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// Fault is a fault of a test's, which stands until Clear, and not longer than the test. Its
// methods fail the test where something is wrong, so they belong to the test's own goroutine.
type Fault struct {
	t     testing.TB
	scope *scope
	held  *Injection
	// The two things that a test may accept.
	allowGaps, allowUnmet bool
	cleared               atomic.Bool
}

// Inject makes the fault that spec says and ends it with the test. Loss, Delay, Partition, Drop
// and Toxic are shorter for what is asked for most. It fails the test where that cannot be, and
// skips it where this machine cannot do it.
//
// Where somebody else's fault stands on the same packets, another test's or another program's,
// it waits for its end: see Spec.Wait. Several faults of one test combine, unless they set the
// same thing, which fails the test.
func Inject(t testing.TB, spec Spec) *Fault {
	t.Helper()
	s := sessionOf(t)
	c := scopeOf(t, s)
	ctx, cancel := deadlined(t)
	defer cancel()
	var err error
	if spec.Target, err = c.fullName(s, spec.Target); err != nil {
		t.Fatalf("netemtest: %v", err)
	}
	if spec.Outage, err = c.fullServices(spec.Outage); err != nil {
		t.Fatalf("netemtest: %v", err)
	}
	f := &Fault{t: t, scope: c}
	waiting := ""
	c.aim(spec.targetName())
	making, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	f.held, err = s.inject(making, spec, fault.Spec{Beside: c.beside()}, func(e fault.Event, words string) {
		if e.Kind != client.Waiting {
			c.lines.at(e.Time, "%s %s", e.Fault.ID, happened(e, words))
			return
		}
		if id, ok := c.mine(words); ok {
			stop(fmt.Errorf("%w of the test with its own fault %s, which sets the same thing: Change that one, or Clear it before: %s", fault.ErrConflict, id, words))
		}
		if waiting == "" {
			c.lines.add("waits for another fault's end: %s", words)
		}
		waiting = words
	})
	if err != nil {
		if waiting != "" && ctx.Err() != nil {
			err = fmt.Errorf("%w: waited for: %s", err, waiting)
		}
		refuse(t, err)
	}
	first := f.held.holding.Fault
	c.addFault(f)
	c.lines.add("%s applied: %s (engine %s, %s)", first.ID, words(first.Spec), first.Engine, placement(first))
	for _, w := range first.Warnings {
		c.lines.add("%s warning: %s", first.ID, w)
	}
	t.Cleanup(func() {
		t.Helper()
		f.Clear()
	})
	return f
}

// AllowGaps accepts that the fault is not in force all the time: for tests that take it away
// themselves, or that nothing but the end of matters to.
func (f *Fault) AllowGaps() *Fault {
	f.allowGaps = true
	return f
}

// AllowUnmet accepts that no packet meets the fault.
func (f *Fault) AllowUnmet() *Fault {
	f.allowUnmet = true
	return f
}

// ID is the agent's name of the fault, by which netemctl knows it.
func (f *Fault) ID() string { return f.held.ID() }

// Target is the agent's name of what it is aimed at: "shop-retries-k3fq1/api".
func (f *Fault) Target() string { return f.held.Target() }

// String says what was injected: "kqv1: loss 20% to pg".
func (f *Fault) String() string { return f.held.String() }

// Change replaces the impairment in place: nothing is lost in between, and the counters begin
// anew.
func (f *Fault) Change(n qdisc.Netem) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	before := ""
	if st, err := f.held.Stats(ctx); err == nil {
		before = "; before: " + st.String()
	}
	if err := f.held.Change(ctx, n); err != nil {
		f.t.Fatalf("netemtest: %v", err)
	}
	f.scope.lines.add("%s changed: %s%s", f.ID(), n, before)
}

// Clear ends the fault, and fails the test if it did not do what it was for. A second Clear does
// nothing.
func (f *Fault) Clear() {
	f.t.Helper()
	if f.cleared.Swap(true) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	f.scope.removeFault(f)
	err := f.held.Clear(ctx)
	f.held.mu.Lock()
	last, gaps := f.held.last, f.held.gaps
	f.held.mu.Unlock()
	f.scope.lines.add("%s cleared: %s", f.ID(), stats(last))
	for _, wrong := range f.judge(last, gaps, err) {
		f.scope.lines.add("%s %s", f.ID(), wrong)
		if !f.t.Failed() && !f.t.Skipped() { // a test that failed has said enough
			f.t.Errorf("netemtest: fault %s: %s", f, wrong)
		}
	}
}

// Stats are the packets that met the fault, also after Clear. The proxy counts none.
func (f *Fault) Stats() Stats {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	s, err := f.held.Stats(ctx)
	if err != nil {
		f.t.Fatalf("netemtest: %v", err)
	}
	return s
}

// Packets are those that a Rule has chosen so far, the oldest first.
func (f *Fault) Packets() []Packet {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	all, err := f.held.Packets(ctx)
	if err != nil {
		f.t.Fatalf("netemtest: %v", err)
	}
	return all
}

// maxOpened is the share of its packets, in percent, that a fault may have let pass since the
// engine was late: netemctl's for a command beside a fault.
const maxOpened = 1

// judge says what is wrong with a fault that has ended: why a test that passed beside it proves
// nothing.
func (f *Fault) judge(last fault.Fault, gaps []string, err error) (wrong []string) {
	if !f.allowGaps {
		switch {
		case len(gaps) > 0:
			for _, g := range gaps {
				wrong = append(wrong, "was not in force as asked for all the time: "+g)
			}
		case err != nil:
			wrong = append(wrong, "was not held to its end: "+err.Error())
		case last.State != fault.Active && last.State != fault.Cleared:
			wrong = append(wrong, "was not in force at its end: "+string(last.State))
		}
	}
	if last.Spec.Request != nil {
		return append(wrong, f.judgeRequests(last.Counters)...)
	}
	if !last.Spec.OnPackets() {
		return wrong
	}
	c := last.Counters
	if last.Total.Seen > c.Seen { // it was changed
		c = last.Total
	}
	switch rule := last.Spec.Content != nil; {
	case rule && c.Opened > 0 && !f.allowGaps:
		wrong = append(wrong, fmt.Sprintf("let %d packets pass that it had chosen: the engine was late", c.Opened))
	case !rule && 100*c.Opened > maxOpened*c.Seen && !f.allowGaps:
		wrong = append(wrong, fmt.Sprintf("let %d of %d packets pass unimpaired: the engine was late", c.Opened, c.Seen))
	}
	switch {
	case f.allowUnmet:
	case last.Spec.Content != nil && last.Chosen() == 0 && c.Opened == 0:
		wrong = append(wrong, fmt.Sprintf("chose no packet of %d: the test ran as if there were no fault (AllowUnmet accepts that)", c.Seen))
	case last.Spec.Packet != nil && c.Seen == 0 && !missed(last):
		wrong = append(wrong, "met no packet: the test ran as if there were no fault (AllowUnmet accepts that)")
	}
	return wrong
}

// judgeRequests is judge of a fault of requests.
func (f *Fault) judgeRequests(c fault.Counters) (wrong []string) {
	if 100*c.Opened > maxOpened*c.Seen && !f.allowGaps {
		wrong = append(wrong, fmt.Sprintf("let %d of %d requests pass unimpaired: nothing was heard of the agent", c.Opened, c.Seen))
	}
	if c.Seen == 0 && !f.allowUnmet {
		wrong = append(wrong, "met no request: the test ran as if there were no fault (AllowUnmet accepts that)")
	}
	return wrong
}

// missed reports whether the engine cannot say how many packets it saw.
func missed(f fault.Fault) bool { return slices.Contains(f.CountersMissing, "seen") }

// deadlined is the time that a test leaves for what has to wait: until shortly before its own
// deadline, so that it fails by itself and with its reason, and not by go test's timeout, which
// runs no cleanup.
func deadlined(t testing.TB) (context.Context, context.CancelFunc) {
	limit := defaultWait
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := d.Deadline(); ok {
			left := time.Until(at)
			limit = max(left-min(max(leaveTime, left/leaveShare), left/2), time.Millisecond)
		}
	}
	return context.WithTimeoutCause(t.Context(), limit, errors.New("the test's own time is nearly over"))
}

const (
	// defaultWait is for tests without a deadline: go test's own default timeout.
	defaultWait = 10 * time.Minute
	// leaveTime, or the share of what is left if that is more, is for what comes after; at
	// most half of it.
	leaveTime  = 5 * time.Second
	leaveShare = 20
)
