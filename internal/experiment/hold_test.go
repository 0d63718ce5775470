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
		h, err := Hold(t.Context(), a, spec())
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
	h, err := Hold(ctx, a, spec())
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
	_, err := Hold(ctx, cancelling{a, cancel}, spec())
	if !errors.Is(err, errStop) || len(a.faults) != 0 {
		t.Errorf("error %v, left %v", err, a.faults)
	}
	if diff := cmp.Diff([]string{"apply f1", "clear f1"}, a.log); diff != "" {
		t.Error(diff)
	}
}
