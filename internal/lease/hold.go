package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// holdBuffer is how many events a holder may leave unread. The last one always has room.
const holdBuffer = 32

// Hold is a client's hold on a fault: what makes the fault end when the client does. One
// client has it at a time, known by its token. It is safe for concurrent use.
type Hold struct {
	m      *Manager
	id     string
	token  uint64
	holder string
	since  time.Time
	events chan fault.Event

	// What follows is guarded by the Manager's lock. over says that events is closed, err
	// why if the fault did not end, and last what the fault was at its end.
	over  bool
	err   error
	last  fault.Fault
	grace *time.Timer
}

// Hold is Apply of a fault that a client holds. Where a RequestID names a fault that an
// earlier call made, that one is taken over, as by Resume. The caller must end the hold by
// Release or Drop. waiting, when it is not nil, is called with the conflict when the fault
// has to wait (Spec.Wait).
func (m *Manager) Hold(ctx context.Context, s fault.Spec, waiting func(conflict error)) (*Hold, error) {
	failpoint.At("lease.hold.begin")
	f, hold, err := m.make(ctx, s, true, waiting)
	if err != nil || hold != nil {
		return hold, err
	}
	if hold, err = m.takeOver(ctx, f.ID, false, func(*held) error { return nil }); err != nil {
		return nil, fmt.Errorf("apply: %w", err)
	}
	return hold, nil
}

// Resume takes over a fault whose holder's stream broke, or still stands but is not heard
// any more. token is the one of the last Hold; the new one has another, and the old one
// is told and has no rights left. owner is the Whose of the fault, or empty for root. The error
// is fault.ErrConflict, naming the holder, for a token that is not the last one, and
// ErrUnknownFault for a fault that has ended.
func (m *Manager) Resume(ctx context.Context, id string, token uint64, owner string) (*Hold, error) {
	if token == 0 {
		return nil, &qdisc.FieldError{Field: "token", Value: "0", Want: "the token that the hold was given"}
	}
	h, err := m.takeOver(ctx, id, owner == "", func(h *held) error {
		if owner != "" && h.fault.Spec.Whose() != owner {
			return h.notYours()
		}
		return h.checkToken(token)
	})
	if err != nil {
		return nil, fmt.Errorf("resume: %w", err)
	}
	failpoint.At("lease.hold.resumed")
	return h, nil
}

// takeOver gives a fault a new holder, root or its owner, if may says so.
func (m *Manager) takeOver(ctx context.Context, id string, root bool, may func(*held) error) (*Hold, error) {
	h, leave, err := m.enterFault(ctx, id)
	if err != nil {
		return nil, err
	}
	defer leave()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := may(h); err != nil {
		return nil, err
	}
	if m.closed { // it may have been handed over, as one without a holder
		return nil, errClosing
	}
	if root {
		return m.attach(h, "root"), nil
	}
	return m.attach(h, h.fault.Spec.Owner), nil
}

// attach makes holder the one who holds h. The caller holds the lock.
func (m *Manager) attach(h *held, holder string) *Hold {
	m.lastToken++
	n := &Hold{
		m: m, id: h.fault.ID, token: m.lastToken, holder: holder, since: time.Now(),
		events: make(chan fault.Event, holdBuffer),
	}
	old := h.hold
	h.hold, h.fault.Token = n, n.token
	if h.group == nil { // what it stands beside already, stays
		h.group = h
	}
	if old != nil {
		old.last = h.fault
		old.finish(fmt.Errorf("hold: %w", h.checkToken(old.token)))
	}
	return n
}

// checkToken refuses a token that is not the holder's; 0 stands for whoever holds it. The
// caller holds the lock.
func (h *held) checkToken(token uint64) error {
	switch {
	case token == 0 || token == h.fault.Token:
		return nil
	case h.hold == nil:
		return fmt.Errorf("%w: fault %s is held by no client of this agent, token %d is not valid", fault.ErrConflict, h.fault.ID, token)
	}
	return fmt.Errorf("%w: fault %s is held by another client of %s since %s, with token %d; token %d is not valid any more", fault.ErrConflict,
		h.fault.ID, h.hold.holder, age(h.hold.since), h.hold.token, token)
}

// tell gives the holder an event. A holder that does not read misses those in the middle:
// each carries the whole fault. Steps of a schedule leave half of the room to the others. The
// caller holds the lock.
func (h *Hold) tell(e fault.Event, last bool) {
	if e.Kind == "step" && len(h.events) >= cap(h.events)/2 {
		return
	}
	if last || len(h.events) < cap(h.events)-1 {
		h.events <- e // nobody else sends
	}
}

// finish ends the hold, with err when the fault goes on. The caller holds the lock.
func (h *Hold) finish(err error) {
	if h.over {
		return
	}
	h.over, h.err = true, err
	if h.grace != nil {
		h.grace.Stop()
	}
	close(h.events)
}

// ID and Token name the hold for a Resume.
func (h *Hold) ID() string { return h.id }

// Token grows with each hold of the agent's life, from 1.
func (h *Hold) Token() uint64 { return h.token }

// Fault returns the fault as it was seen last, also after its end.
func (h *Hold) Fault() fault.Fault {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if held := h.m.held[h.id]; held != nil && !h.over {
		return held.fault
	}
	return h.last
}

// Events are what others and time did to the fault: changed, renewed, lost, drifted,
// repaired, cleared, expired. The channel is closed after the last of them, and when
// another client took over, which Err says then; what this Hold did itself is not told.
func (h *Hold) Events() <-chan fault.Event { return h.events }

// Err returns, after Events was closed, why: nil for a fault that has ended.
func (h *Hold) Err() error {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	return h.err
}

// Renew gives the fault its own time to live again, from now.
func (h *Hold) Renew(ctx context.Context) (fault.Fault, error) {
	return h.m.renew(ctx, h.id, party{token: h.token, hold: h}, 0)
}

// Release ends the fault and returns it with its last counters. Of a fault that has ended
// already it returns how that was.
func (h *Hold) Release(ctx context.Context) (fault.Fault, error) {
	held, leave, err := h.m.enterFault(ctx, h.id)
	if err != nil {
		return h.ended(err)
	}
	defer h.m.endWithin(held)
	defer leave()
	h.m.mu.Lock()
	err = held.checkToken(h.token)
	h.m.mu.Unlock()
	if err != nil {
		return fault.Fault{}, fmt.Errorf("release: %w", err)
	}
	f, err := h.m.end(ctx, held, fault.Cleared, h)
	failpoint.At("lease.hold.released")
	return f, err
}

// ended returns the fault if it ended under this hold, else err.
func (h *Hold) ended(err error) (fault.Fault, error) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	switch {
	case !errors.Is(err, ErrUnknownFault), !h.over:
		return fault.Fault{}, err
	case h.err != nil:
		return fault.Fault{}, h.err
	}
	return h.last, nil
}

// Drop is for a holder who is gone: the fault ends, with grace 0 before Drop returns,
// otherwise after grace, when its time is not over before and nobody resumed it. What
// cannot be cleared is tried again. After a Release, and when another client has taken
// over, it does nothing.
func (h *Hold) Drop(grace time.Duration) {
	if grace <= 0 {
		h.m.dropped(h)
		return
	}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if !h.over && h.grace == nil {
		h.grace = time.AfterFunc(grace, func() { h.m.dropped(h) })
	}
}

// dropped ends the fault of a hold that is no more.
func (m *Manager) dropped(h *Hold) {
	ctx := context.Background()
	held, leave, err := m.enterFault(ctx, h.id)
	if err != nil {
		return // it has ended
	}
	defer m.endWithin(held)
	defer leave()
	m.mu.Lock()
	mine := held.hold == h && !h.over
	m.mu.Unlock()
	if !mine {
		return
	}
	failpoint.At("lease.hold.dropped")
	if _, err := m.end(ctx, held, fault.Cleared, nil); err != nil {
		m.endLater(held, err)
	}
}
