package experiment

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	"netemd/internal/fault"
)

// Faults is what holding a fault needs of the agent.
type Faults interface {
	// Hold makes a fault that lasts no longer than this process holds it. notify is told
	// what happens to it, in one goroutine at a time: an event, and words where there are
	// some. ctx's end before the fault is made leaves none, and is the error.
	Hold(ctx context.Context, spec fault.Spec, notify func(e fault.Event, words string)) (Held, error)
}

// Held is a fault that this process holds.
type Held interface {
	// Fault is what the agent said last.
	Fault() fault.Fault
	// Renew gives it its time to live again; the error is why it is no longer held.
	Renew() error
	// Release looks a last time and ends it, also after ctx did. The fault that it returns
	// is in the state that the look found, or in which it had ended before.
	Release(ctx context.Context) (fault.Fault, error)
}

const (
	// HoldTTL is the time to live of a fault that is held: it outlives a holder that was
	// stopped, or that is cut off from the agent, by at most this.
	HoldTTL = 30 * time.Second
	// callLimit bounds a call that must not be cut short by an interrupt, such as
	// an apply (its fault would have no known id) or a clear.
	// A proxy that hangs is given up by the agent after about 20 s.
	callLimit = 30 * time.Second
)

// Holding is a fault that stands until it is released, and not longer than its holder.
type Holding struct {
	// Fault is the fault as it was applied.
	Fault fault.Fault

	held Held
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	renewal error
	gaps    Gaps
	// since is when it went out of force, zero while it is in force.
	since time.Time
}

// Gaps are the times in which a fault was held and not in force, as far as they ended.
type Gaps struct {
	Count int
	Total time.Duration
}

// Hold makes the fault and keeps it alive. Without a TTL it has HoldTTL and is renewed
// every third of that, so that it ends soon when the holder is stopped; a TTL that is
// asked for ends it, however long it is held. An interrupted ctx never leaves a fault
// behind. notify, which may be nil, is told what Faults.Hold says.
func Hold(ctx context.Context, faults Faults, spec fault.Spec, notify func(e fault.Event, words string)) (*Holding, error) {
	renewed := spec.TTL == 0
	if renewed {
		spec.TTL = HoldTTL
	}
	if spec.RequestID == "" {
		spec.RequestID = rand.Text()
	}
	h := &Holding{done: make(chan struct{})}
	var err error
	h.held, err = faults.Hold(ctx, spec, func(e fault.Event, words string) {
		h.note(e)
		if notify != nil {
			notify(e, words)
		}
	})
	if err != nil {
		return nil, err
	}
	h.Fault = h.held.Fault()
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	h.stop = stop
	if !renewed {
		close(h.done)
		return h, nil
	}
	go h.renew(renewing, spec.TTL)
	return h, nil
}

// note keeps account of when the fault is in force.
func (h *Holding) note(e fault.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch in := e.Fault.State == fault.Active; {
	case e.Fault.ID == "":
	case in && !h.since.IsZero():
		h.gaps.Count++
		h.gaps.Total += e.Time.Sub(h.since)
		h.since = time.Time{}
	case !in && h.since.IsZero():
		h.since = e.Time
	}
}

// Gaps are the times, until now, in which the fault was not in force and then was again.
func (h *Holding) Gaps() Gaps {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gaps
}

// Applier is the part of Faults that ApplyWhole needs.
type Applier interface {
	Apply(ctx context.Context, spec fault.Spec) (fault.Fault, error)
	Clear(ctx context.Context, what fault.Selector) ([]fault.Fault, error)
}

// ApplyWhole applies spec without being cut short, so that the fault's id is
// known in every case; if ctx ended meanwhile, the fault is cleared again and
// ctx's error returned. Only waiting for another fault's end is cut short.
func ApplyWhole(ctx context.Context, faults Applier, spec fault.Spec) (fault.Fault, error) {
	if err := ctx.Err(); err != nil {
		return fault.Fault{}, context.Cause(ctx)
	}
	if spec.RequestID == "" {
		spec.RequestID = rand.Text()
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit+spec.Wait)
	defer cancel()
	if spec.Wait > 0 {
		defer context.AfterFunc(ctx, cancel)()
	}
	f, err := faults.Apply(whole, spec)
	if err != nil && ctx.Err() != nil && spec.Wait > 0 {
		return fault.Fault{}, errors.Join(context.Cause(ctx), undoWaiting(ctx, faults, spec))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the agent did not finish the fault within %v: %w", callLimit+spec.Wait, err)
		return fault.Fault{}, errors.Join(err, undoUnanswered(ctx, faults, spec, callLimit))
	}
	if err != nil {
		return fault.Fault{}, err
	}
	if ctx.Err() != nil {
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
		defer cancel()
		_, err := faults.Clear(again, fault.Selector{ID: f.ID})
		return fault.Fault{}, errors.Join(context.Cause(ctx), err)
	}
	return f, nil
}

// undoUnanswered clears what an apply may have made that was never answered: the
// same request again makes no second fault, but tells the first one's id.
func undoUnanswered(ctx context.Context, faults Applier, spec fault.Spec, limit time.Duration) error {
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	f, err := faults.Apply(again, spec)
	if err != nil {
		return err
	}
	_, err = faults.Clear(again, fault.Selector{ID: f.ID})
	return err
}

// undoLimit is how long the answer to a fault that was made may take: it only has to be
// found.
const undoLimit = time.Second

// undoWaiting does the same for an apply that was cut short while it waited. When it
// waits again, nothing had been made.
func undoWaiting(ctx context.Context, faults Applier, spec fault.Spec) error {
	err := undoUnanswered(ctx, faults, spec, undoLimit)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || errors.Is(err, fault.ErrConflict) {
		return nil
	}
	return err
}

func (h *Holding) renew(ctx context.Context, ttl time.Duration) {
	defer close(h.done)
	tick := time.NewTicker(ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := h.held.Renew()
		if err != nil {
			err = fmt.Errorf("renew %s: %w", h.Fault.ID, err)
		}
		h.mu.Lock()
		h.renewal = err // a later success makes an earlier failure good: the fault stood
		h.mu.Unlock()
	}
}

// Release looks at the fault a last time and ends it, also after the holder's context
// ended. The fault that it returns has the final counters, and the state of that look or
// in which it had ended before; the error is why it was not held to this moment. A second
// Release is harmless.
func (h *Holding) Release(ctx context.Context) (fault.Fault, error) {
	h.stop()
	<-h.done
	last, err := h.held.Release(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		err = h.renewal
	}
	return last, err
}
