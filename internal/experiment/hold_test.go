package experiment

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/qdisc"
)

func spec() fault.Spec { return fault.Spec{Target: "pg", Packet: &qdisc.Netem{Loss: 20}} }

func TestHoldRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		h, err := Hold(t.Context(), a, spec(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if h.Fault.Spec.TTL != HoldTTL {
			t.Errorf("time to live %v", h.Fault.Spec.TTL)
		}
		time.Sleep(HoldTTL + time.Second)
		if _, err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := []string{"apply f1", "renew f1", "renew f1", "renew f1", "clear f1"}
		if diff := cmp.Diff(want, a.log); diff != "" {
			t.Error(diff)
		}
	})
}

func TestHoldReleasesAfterTheEnd(t *testing.T) {
	a := newAgent()
	ctx, cancel := context.WithCancel(t.Context())
	h, err := Hold(ctx, a, spec(), nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	last, err := h.Release(ctx)
	if err != nil || last.Counters.Seen == 0 || len(a.faults) != 0 {
		t.Errorf("last %+v, error %v, left %v", last, err, a.faults)
	}
}

// cancelling ends the context while it applies.
type cancelling struct {
	*agent
	cancel context.CancelCauseFunc
}

func (c cancelling) Apply(ctx context.Context, s fault.Spec) (fault.Fault, error) {
	c.cancel(errStop)
	return c.agent.Apply(ctx, s)
}

func TestApplyInterrupted(t *testing.T) {
	a := newAgent()
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := ApplyWhole(ctx, cancelling{a, cancel}, spec())
	if !errors.Is(err, errStop) || len(a.faults) != 0 {
		t.Errorf("error %v, left %v", err, a.faults)
	}
	if diff := cmp.Diff([]string{"apply f1", "clear f1"}, a.log); diff != "" {
		t.Error(diff)
	}
}

// waiting makes no fault as long as its context lasts; made says that it made one just
// then, whose answer was not waited for.
type waiting struct {
	*agent
	cancel context.CancelCauseFunc
	made   bool
	calls  int
}

func (w *waiting) Apply(ctx context.Context, s fault.Spec) (fault.Fault, error) {
	if w.calls++; w.calls > 1 && w.made {
		return w.agent.Apply(context.WithoutCancel(ctx), s)
	}
	w.cancel(errStop)
	<-ctx.Done()
	return fault.Fault{}, ctx.Err()
}

// TestWaitingInterrupted: waiting is cut short, and leaves no fault.
func TestWaitingInterrupted(t *testing.T) {
	for _, made := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := spec()
			s.Wait = time.Hour
			ctx, cancel := context.WithCancelCause(t.Context())
			w := &waiting{agent: newAgent(), cancel: cancel, made: made}
			began := time.Now()
			_, err := ApplyWhole(ctx, w, s)
			if !errors.Is(err, errStop) || len(w.faults) != 0 || w.calls != 2 || time.Since(began) > undoLimit {
				t.Errorf("made %v: error %v, left %v, %d calls, %v", made, err, w.faults, w.calls, time.Since(began))
			}
		})
	}
}

// TestHoldTTL: a time to live that is asked for is not renewed.
func TestHoldTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		s := spec()
		s.TTL = 3 * time.Second
		h, err := Hold(t.Context(), a, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"apply f1", "clear f1"}, a.log); diff != "" || h.Fault.Spec.TTL != s.TTL {
			t.Errorf("time to live %v %s", h.Fault.Spec.TTL, diff)
		}
	})
}

// TestHoldGaps: the times out of force are added up, and the holder is told.
func TestHoldGaps(t *testing.T) {
	a := newAgent()
	var told []string
	h, err := Hold(t.Context(), a, spec(), func(e fault.Event, words string) { told = append(told, e.Kind+words) })
	if err != nil {
		t.Fatal(err)
	}
	at := func(s int, kind string, state fault.State, words string) {
		f := h.Fault
		f.State = state
		a.notify(fault.Event{Time: time.Unix(int64(s), 0), Kind: kind, Fault: f}, words)
	}
	at(1, "drifted", fault.Drifted, "")
	at(2, "lost", fault.Lost, "")
	at(4, "repaired", fault.Active, "")
	at(5, "lost", fault.Lost, "")
	at(6, "repaired", fault.Active, " again")
	at(7, "lost", fault.Lost, "")
	a.notify(fault.Event{Time: time.Unix(9, 0), Kind: "waiting"}, "")
	if got, want := h.Gaps(), (Gaps{2, 4 * time.Second}); got != want {
		t.Errorf("gaps %v, want %v", got, want)
	}
	if diff := cmp.Diff([]string{"drifted", "lost", "repaired", "lost", "repaired again", "lost", "waiting"}, told); diff != "" {
		t.Error(diff)
	}
	if _, err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestHoldNotRenewed: why it is no longer held is told at its end.
func TestHoldNotRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		a.renewErr = errStop
		h, err := Hold(t.Context(), a, spec(), nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(HoldTTL)
		if _, err := h.Release(t.Context()); !errors.Is(err, errStop) {
			t.Errorf("error %v", err)
		}
	})
}
