package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
)

func TestHold(t *testing.T) {
	a := newAgent()
	socket, _ := a.onSocket(t)
	c := open(t, Endpoint{Socket: socket})
	w := newTold()
	s := spec()
	s.Repair, s.RequestID = true, "r"
	h, err := c.Hold(t.Context(), s, w.notify)
	if err != nil {
		t.Fatal(err)
	}
	if f := h.Fault(); f.ID != "f1" || f.Token != 1 || a.spec.RequestID != "r" || !a.spec.Repair {
		t.Errorf("fault %+v, asked for %+v", f, a.spec)
	}
	a.happen("f1", "lost", fault.Lost)
	a.happen("f1", "repaired", fault.Active)
	w.wait(t, 2)
	if err := h.Renew(); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // its end must not keep the fault from being released
	last, err := h.Release(ctx)
	if err != nil || last.State != fault.Active || last.Counters.Lost != 7 {
		t.Errorf("last %+v, error %v", last, err)
	}
	if _, err := h.Release(t.Context()); err != nil {
		t.Errorf("a second release: %v", err)
	}
	if diff := cmp.Diff([]string{"apply f1", "renew f1", "release f1"}, a.logged()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"lost", "repaired"}, w.wait(t, 2)); diff != "" {
		t.Error(diff)
	}
}

// TestHoldReleasesLost: the state is that of before the end.
func TestHoldReleasesLost(t *testing.T) {
	a := newAgent()
	socket, _ := a.onSocket(t)
	w := newTold()
	h, err := open(t, Endpoint{Socket: socket}).Hold(t.Context(), spec(), w.notify)
	if err != nil {
		t.Fatal(err)
	}
	a.happen("f1", "drifted", fault.Drifted)
	w.wait(t, 1)
	if last, err := h.Release(t.Context()); err != nil || last.State != fault.Drifted {
		t.Errorf("last %+v, error %v", last, err)
	}
}

// TestHoldEndedByOthers: the holder is told, and its release has nothing to do.
func TestHoldEndedByOthers(t *testing.T) {
	for kind, state := range map[string]fault.State{"cleared": fault.Cleared, "expired": fault.Expired} {
		a := newAgent()
		socket, _ := a.onSocket(t)
		w := newTold()
		h, err := open(t, Endpoint{Socket: socket}).Hold(t.Context(), spec(), w.notify)
		if err != nil {
			t.Fatal(err)
		}
		a.happen("f1", kind, state)
		if got := w.wait(t, 1); got[0] != kind {
			t.Errorf("told %v", got)
		}
		if last, err := h.Release(t.Context()); err != nil || last.State != state {
			t.Errorf("%s: last %+v, error %v", kind, last, err)
		}
		if err := h.Renew(); err != nil {
			t.Error(err)
		}
	}
}

// TestHoldEndsWithItsClient: the connection's end is enough.
func TestHoldEndsWithItsClient(t *testing.T) {
	a := newAgent()
	socket, _ := a.onSocket(t)
	c, err := Open(Endpoint{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Hold(t.Context(), spec(), nil); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the fault ended", func() bool { return a.standing() == 0 })
	if diff := cmp.Diff([]string{"apply f1", "drop f1"}, a.logged()); diff != "" {
		t.Error(diff)
	}
}

// TestHoldOfAnAgentThatDied: over a unix socket that is the end.
func TestHoldOfAnAgentThatDied(t *testing.T) {
	t.Parallel()
	a := newAgent()
	a.grace = time.Minute
	socket, kill := a.onSocket(t)
	w := newTold()
	h, err := open(t, Endpoint{Socket: socket}).Hold(t.Context(), spec(), w.notify)
	if err != nil {
		t.Fatal(err)
	}
	kill()
	if got := w.wait(t, 1); got[0] != Gone {
		t.Errorf("told %v", got)
	}
	if err := h.Renew(); !errors.Is(err, ErrUnreachable) {
		t.Errorf("renew: %v", err)
	}
	// Another agent has taken the fault over, and listens where the first did.
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	a.serve(t, l, insecureCredentials())
	time.Sleep(1500 * time.Millisecond) // a client tries again within 1 s
	last, err := h.Release(t.Context())
	if !errors.Is(err, ErrUnreachable) || last.State == fault.Active || a.standing() != 0 {
		t.Errorf("last %+v, error %v, %d left", last, err, a.standing())
	}
}

// TestHoldInterrupted: a fault that was made all the same is released.
func TestHoldInterrupted(t *testing.T) {
	a := newAgent()
	socket, _ := a.onSocket(t)
	c := open(t, Endpoint{Socket: socket})
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	cancel(stop)
	if _, err := c.Hold(ctx, spec(), nil); !errors.Is(err, stop) || a.standing() != 0 {
		t.Errorf("error %v, %d left", err, a.standing())
	}
	if len(a.logged()) > 0 {
		t.Errorf("did %v", a.logged())
	}
}

func TestHoldWaits(t *testing.T) {
	a := newAgent()
	a.waits = make(chan struct{})
	socket, _ := a.onSocket(t)
	c := open(t, Endpoint{Socket: socket})
	if _, err := c.Hold(t.Context(), spec(), nil); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("without waiting: %v", err)
	}
	s := spec()
	s.Wait = time.Minute
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	_, err := c.Hold(ctx, s, func(e fault.Event, words string) {
		if e.Kind != Waiting || !strings.Contains(words, "held by uid 7") {
			t.Errorf("told %s %q", e.Kind, words)
		}
		cancel(stop)
	})
	if !errors.Is(err, stop) {
		t.Errorf("interrupted: %v", err)
	}
	eventually(t, "nobody waits", func() bool { return len(a.logged()) == 1 })
	h, err := c.Hold(t.Context(), s, func(fault.Event, string) { close(a.waits) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"gave up waiting", "apply f1", "release f1"}, a.logged()); diff != "" {
		t.Error(diff)
	}
}
