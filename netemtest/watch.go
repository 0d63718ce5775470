package netemtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"netemd/internal/fault"
)

// Event is something that happened to a fault.
type Event struct {
	Time time.Time
	// Kind is applied, changed, renewed, expired, cleared, lost, drifted or repaired.
	Kind string
	// ID, Target and What are the fault's: "kqv1", "pg", "loss 20% to pg".
	ID, Target, What string
	// Reason is why it was lost or drifted.
	Reason string
}

// String says the event in one line.
func (e Event) String() string {
	s := fmt.Sprintf("%s %s: %s", e.ID, e.Kind, e.What)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s
}

// Watcher sees what happens to the faults of a test: see Watch.
type Watcher struct {
	t    testing.TB
	mu   sync.Mutex
	seen []Event
	read int
	news chan struct{} // closed and made anew with each event
	err  error         // why there will be no more
}

// Watch sees what happens, from now to the test's end, at the targets of the test's labs, at
// those that its faults are aimed at, and at those that it names: also what other programs do,
// such as a netemctl of somebody's, which stands in the timeline of a test that fails.
func Watch(t testing.TB, targets ...string) *Watcher {
	t.Helper()
	s := sessionOf(t)
	c := scopeOf(t, s)
	w := &Watcher{t: t, news: make(chan struct{})}
	var names []string
	for _, name := range targets {
		full, err := c.fullName(s, name)
		if err != nil {
			t.Fatalf("netemtest: %v", err)
		}
		names = append(names, full)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	begun := make(chan struct{})
	go func() {
		defer close(done)
		err := s.client.WatchFrom(ctx, 0, "", sync.OnceFunc(func() { close(begun) }), func(e fault.Event) {
			if target := e.Fault.Spec.TargetName(); slices.Contains(names, target) || c.has(target) {
				w.add(e)
			}
		})
		w.end(err)
	}()
	select {
	case <-begun:
	case <-done: // Next says why
	}
	t.Cleanup(func() {
		cancel()
		<-done
		for _, e := range w.Events() {
			if !c.owns(e.ID) {
				c.lines.at(e.Time, "%s, of somebody else's", e)
			}
		}
	})
	return w
}

func (w *Watcher) add(e fault.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, Event{
		Time: e.Time, Kind: e.Kind, ID: e.Fault.ID, Target: e.Fault.Spec.TargetName(), What: words(e.Fault.Spec), Reason: e.Fault.Reason,
	})
	close(w.news)
	w.news = make(chan struct{})
}

func (w *Watcher) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err = err; err == nil {
		w.err = errors.New("the watch ended")
	}
	close(w.news)
	w.news = make(chan struct{})
}

// Events are all that were seen so far.
func (w *Watcher) Events() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen)
}

// Next waits for the next event of that kind, or of any for an empty one, behind those that
// Next has returned or passed over, and fails the test when none comes within limit.
func (w *Watcher) Next(kind string, limit time.Duration) Event {
	w.t.Helper()
	late := time.NewTimer(limit)
	defer late.Stop()
	for {
		w.mu.Lock()
		for w.read < len(w.seen) {
			e := w.seen[w.read]
			w.read++
			if kind == "" || e.Kind == kind {
				w.mu.Unlock()
				return e
			}
		}
		news, err := w.news, w.err
		w.mu.Unlock()
		if err != nil {
			w.t.Fatalf("netemtest: watch: %v", err)
		}
		select {
		case <-news:
		case <-late.C:
			w.t.Fatalf("netemtest: no event %s within %s; seen: %s", kind, limit, w.list())
		}
	}
}

func (w *Watcher) list() string {
	var all []string
	for _, e := range w.Events() {
		all = append(all, e.String())
	}
	return strings.Join(all, "; ")
}
