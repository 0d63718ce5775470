package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/testenv"
	"netemd/qdisc"
)

func start(cmd *exec.Cmd) error { return cmd.Start() }

// none waits until no fault is held, and says how long that took.
func none(t testing.TB, c *client.Client) time.Duration {
	t.Helper()
	begun := time.Now()
	eventually(t, "no fault is left", func() bool {
		fs, err := c.List(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return len(fs) == 0
	})
	return time.Since(begun)
}

// A held fault ends with the process that holds it, at once.
func TestHolderIsKilled(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	agent, c := serveWith(t, Config{})
	other := actor{Hold: a, Socket: agent.cfg.Socket}.start(t, start)
	fs, err := c.List(t.Context())
	if err != nil || len(fs) != 1 || fs[0].Token == 0 {
		t.Fatalf("held: %+v, %v, want one fault with a token", fs, err)
	}
	if got := arrive(t, a, b, 5001, 50); got != 0 {
		t.Errorf("%d of 50 arrive under the fault", got)
	}
	if err := other.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	took := none(t, c)
	t.Logf("cleared %v after SIGKILL", took)
	if got := arrive(t, a, b, 5001, 50); got != 50 {
		t.Errorf("%d of 50 arrive after it", got)
	}
}

// A holder that says nothing lets the time to live pass, and is told of its end.
func TestHolderIsSilent(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	_, c := serveWith(t, Config{})
	var mu sync.Mutex
	var kinds []string
	spec := held(a)
	spec.TTL = time.Second
	h, err := c.Hold(t.Context(), spec, func(e fault.Event, _ string) {
		mu.Lock()
		defer mu.Unlock()
		kinds = append(kinds, e.Kind)
	})
	if err != nil {
		t.Fatal(err)
	}
	none(t, c)
	eventually(t, "the holder is told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(kinds, "expired")
	})
	if f, err := h.Release(t.Context()); err != nil || f.State != fault.Expired {
		t.Errorf("released after its end: %+v, %v, want expired", f, err)
	}
}

// A holder is told that it was the agent who ended its fault, and a watcher that it stopped.
func TestHolderOfAnAgentThatStops(t *testing.T) {
	testenv.Root(t)
	a := netns(t, "a")
	pair(t, a, netns(t, "b"))
	ready := make(chan bool, 1)
	agent, err := New(t.Context(), Config{StateDir: filepath.Join(t.TempDir(), "s"), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Ready: func() { ready <- true }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- agent.Serve(ctx) }()
	<-ready
	c, err := client.Open(client.Endpoint{Socket: agent.cfg.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	told := make(chan string, 8)
	h, err := c.Hold(t.Context(), held(a), func(e fault.Event, words string) { told <- e.Kind + ": " + words })
	if err != nil {
		t.Fatal(err)
	}
	watched := make(chan error, 1)
	go func() { watched <- c.Watch(t.Context(), 0, "", func(fault.Event) {}) }()
	stop()
	if got := <-told; got != "cleared: the agent is stopping" {
		t.Errorf("told %q", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if f, err := h.Release(t.Context()); err != nil || f.State != fault.Cleared {
		t.Errorf("released: %+v, %v", f, err)
	}
	if err := <-watched; !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("watched: %v", err)
	}
}

// What clients do all the time is no warning.
func TestFailureLevel(t *testing.T) {
	for _, c := range []struct {
		err  error
		want slog.Level
	}{
		{context.Canceled, slog.LevelInfo}, {status.FromContextError(context.Canceled).Err(), slog.LevelInfo},
		{fmt.Errorf("apply: %w: held by another", fault.ErrConflict), slog.LevelInfo}, {errStopping, slog.LevelInfo}, {fault.ErrBusy, slog.LevelWarn}, {errors.New("netlink"), slog.LevelWarn},
	} {
		if got := failureLevel(c.err); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func TestHold(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	agent, c := serveWith(t, Config{})
	h, err := c.Hold(t.Context(), held(a), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := h.Fault()
	before := f.Expires
	if err := h.Renew(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the renewal is answered", func() bool { return h.Fault().Expires.After(before) })

	// Another client waits for its end, and is told what for.
	spec := held(a)
	spec.Wait = 30 * time.Second
	waiting, second := make(chan string, 1), make(chan error, 1)
	other, err := client.Open(client.Endpoint{Socket: agent.cfg.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	go func() {
		h, err := other.Hold(t.Context(), spec, func(e fault.Event, words string) {
			if e.Kind == client.Waiting {
				waiting <- words
			}
		})
		if err == nil {
			_, err = h.Release(context.Background())
		}
		second <- err
	}()
	if words := <-waiting; !says(words, "conflict", f.ID) {
		t.Errorf("waits for %q, want the conflict with fault %s", words, f.ID)
	}
	if got := arrive(t, a, b, 5001, 50); got != 0 {
		t.Errorf("%d of 50 arrive", got)
	}
	last, err := h.Release(t.Context())
	if err != nil || last.State != fault.Active || last.Counters.Lost < 50 {
		t.Errorf("released: %+v, %v, want active to its end, and 50 lost", last, err)
	}
	if err := <-second; err != nil {
		t.Errorf("the one who waited: %v", err)
	}
	none(t, c)

	// What others do to it is told.
	told := make(chan string, 8)
	if h, err = c.Hold(t.Context(), held(a), func(e fault.Event, _ string) { told <- e.Kind }); err != nil {
		t.Fatal(err)
	}
	loss := qdisc.Percent(50)
	if _, err := other.Change(t.Context(), h.Fault().ID, qdisc.Patch{Loss: &loss}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Clear(t.Context(), fault.Selector{ID: h.Fault().ID}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"changed", "cleared"} {
		if got := <-told; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	if _, err := h.Release(t.Context()); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("released after it was cleared by another: %v", err)
	}
}
