package prober

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"netemd/probe"
)

// ErrDeaf is the cause of a run's end when who is told of its samples takes none for a
// while.
var ErrDeaf = errors.New("who asked for the samples takes none")

// ErrTelling says that who is told is still busy with it: it must not be told anything
// else, not even the result.
var ErrTelling = errors.New("who asked for the samples has not come back")

const (
	// untold is how many final samples may wait to be told of; beyond, the child is not
	// read, and at last its calls wait.
	untold = 32_768
	// deaf is how long a run goes on then, and lastWait how long its result waits after it.
	deaf     = 30 * time.Second
	lastWait = 10 * time.Minute
)

// teller tells of samples and of progress from a goroutine of its own, so that nobody who
// measures waits for who is told, but where too much waits. Of progress the last is told.
type teller struct {
	sink   func([]probe.Sample) // nil: samples are not told of
	report func(probe.Progress) // nil: nor is progress
	gone   func(error)          // told once of ErrDeaf
	limits struct {
		untold int
		deaf   time.Duration
	}
	more  chan struct{} // something is to be told
	freed chan struct{} // some of it has been
	done  chan struct{}

	mu       sync.Mutex
	samples  []probe.Sample
	telling  int // samples that the sink has, and has not come back from
	progress *probe.Progress
	closed   bool
	given    bool // up: nothing is told any more
}

func newTeller(sink func([]probe.Sample), report func(probe.Progress), gone func(error)) *teller {
	t := &teller{sink: sink, report: report, gone: gone, more: make(chan struct{}, 1), freed: make(chan struct{}, 1), done: make(chan struct{})}
	t.limits.untold, t.limits.deaf = untold, deaf
	return t
}

func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is known
	}
}

// give enters what is to be told; it does not wait.
func (t *teller) give(samples []probe.Sample, progress *probe.Progress) {
	t.mu.Lock()
	if t.sink != nil && !t.given {
		t.samples = append(t.samples, samples...)
	}
	if progress != nil {
		t.progress = progress
	}
	t.mu.Unlock()
	nudge(t.more)
}

// room waits until not too much waits to be told. Who takes nothing for deaf is told
// nothing any more.
func (t *teller) room() {
	if t.few() {
		return
	}
	patience := time.NewTimer(t.limits.deaf)
	defer patience.Stop()
	for !t.few() {
		select {
		case <-t.freed:
			patience.Reset(t.limits.deaf)
		case <-patience.C:
			t.mu.Lock()
			t.given, t.samples = true, nil
			t.mu.Unlock()
			t.gone(fmt.Errorf("%w for %v, and %d wait: the run was ended, its summary has all that was measured", ErrDeaf, t.limits.deaf, t.limits.untold))
			return
		}
	}
}

func (t *teller) few() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.given || len(t.samples)+t.telling <= t.limits.untold
}

// run tells until close.
func (t *teller) run() {
	defer close(t.done)
	for range t.more {
		for t.tell() {
			nudge(t.freed)
		}
		t.mu.Lock()
		over := t.closed && len(t.samples) == 0 && t.progress == nil
		t.mu.Unlock()
		if over {
			return
		}
	}
}

// tell tells what there is, and reports whether there was anything.
func (t *teller) tell() bool {
	t.mu.Lock()
	samples, progress := t.samples, t.progress
	t.samples, t.progress, t.telling = nil, nil, len(samples)
	t.mu.Unlock()
	if len(samples) > 0 {
		t.sink(samples)
	}
	if progress != nil && t.report != nil {
		t.report(*progress)
	}
	t.mu.Lock()
	t.telling = 0
	t.mu.Unlock()
	return len(samples) > 0 || progress != nil
}

// close waits until all is told, at most for a while; then the error is ErrTelling.
func (t *teller) close(limit time.Duration) error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	nudge(t.more)
	select {
	case <-t.done:
		return nil
	case <-time.After(limit):
		return ErrTelling
	}
}
