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
	Apply(ctx context.Context, spec fault.Spec) (fault.Fault, error)
	Get(ctx context.Context, id string) (fault.Fault, error)
	Renew(ctx context.Context, id string, ttl time.Duration) (fault.Fault, error)
	Clear(ctx context.Context, what fault.Selector) ([]fault.Fault, error)
}

const (
	// HoldTTL is the time to live of a fault that is held: it outlives a killed
	// holder by at most this.
	HoldTTL = 30 * time.Second
	// callLimit bounds a call that must not be cut short by an interrupt, such as
	// an apply (its fault would have no known owner) or a clear.
	// A proxy that hangs is given up by the agent after about 20 s.
	callLimit = 30 * time.Second
)

// Holding is a fault that stands until it is released. It is renewed every third
// of its time to live, so that it ends soon when the holder dies.
type Holding struct {
	// Fault is the fault as it was applied.
	Fault fault.Fault

	faults Faults
	stop   context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	renewal error
}

// Hold applies spec and keeps it alive. An interrupted ctx never leaves a fault
// behind: the apply is finished, then undone, and ctx's error is returned.
func Hold(ctx context.Context, faults Faults, spec fault.Spec) (*Holding, error) {
	if spec.TTL == 0 {
		spec.TTL = HoldTTL
	}
	f, err := ApplyWhole(ctx, faults, spec)
	if err != nil {
		return nil, err
	}
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	h := &Holding{Fault: f, faults: faults, stop: stop, done: make(chan struct{})}
	go h.renew(renewing, spec.TTL)
	return h, nil
}

// Applier is the part of Faults that ApplyWhole needs.
type Applier interface {
	Apply(ctx context.Context, spec fault.Spec) (fault.Fault, error)
	Clear(ctx context.Context, what fault.Selector) ([]fault.Fault, error)
}

// ApplyWhole applies spec without being cut short, so that the fault's id is
// known in every case; if ctx ended meanwhile, the fault is cleared again and
// ctx's error returned.
func ApplyWhole(ctx context.Context, faults Applier, spec fault.Spec) (fault.Fault, error) {
	if err := ctx.Err(); err != nil {
		return fault.Fault{}, context.Cause(ctx)
	}
	if spec.RequestID == "" {
		spec.RequestID = rand.Text()
	}
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	f, err := faults.Apply(whole, spec)
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("the agent did not finish the fault within %v: %w", callLimit, err)
		return fault.Fault{}, errors.Join(err, undoUnanswered(ctx, faults, spec))
	}
	if err != nil {
		return fault.Fault{}, err
	}
	if ctx.Err() != nil {
		_, err := faults.Clear(whole, fault.Selector{ID: f.ID})
		return fault.Fault{}, errors.Join(context.Cause(ctx), err)
	}
	return f, nil
}

// undoUnanswered clears what an apply may have made that was never answered: the
// same request again makes no second fault, but tells the first one's id.
func undoUnanswered(ctx context.Context, faults Applier, spec fault.Spec) error {
	again, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	f, err := faults.Apply(again, spec)
	if err != nil {
		return err
	}
	_, err = faults.Clear(again, fault.Selector{ID: f.ID})
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
		_, err := h.faults.Renew(ctx, h.Fault.ID, ttl)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			err = fmt.Errorf("renew %s: %w", h.Fault.ID, err)
		}
		h.mu.Lock()
		h.renewal = err // a later success makes an earlier failure good: the fault stood
		h.mu.Unlock()
	}
}

// Release looks at the fault a last time and clears it, also after the holder's
// context ended. The fault that it returns has the final state and counters; the
// error of that look is returned too, but never keeps the fault from being
// cleared. A second Release is harmless.
func (h *Holding) Release(ctx context.Context) (fault.Fault, error) {
	h.stop()
	<-h.done
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), callLimit)
	defer cancel()
	last, lookErr := h.faults.Get(whole, h.Fault.ID)
	if lookErr != nil {
		last = h.Fault
		last.State = fault.Lost
		lookErr = fmt.Errorf("last look at %s: %w", h.Fault.ID, lookErr)
	}
	_, clearErr := h.faults.Clear(whole, fault.Selector{ID: h.Fault.ID})
	if clearErr != nil {
		clearErr = fmt.Errorf("clear %s: %w", h.Fault.ID, clearErr)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return last, errors.Join(h.renewal, lookErr, clearErr)
}
