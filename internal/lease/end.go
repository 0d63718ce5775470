package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
)

// retryClear is how long after a failed clearing the next try is made.
const retryClear = time.Second

// schedule sets the timer that ends h. The caller holds the lock.
func (m *Manager) schedule(h *held) {
	if h.timer != nil {
		h.timer.Stop()
	}
	id, expires := h.fault.ID, h.fault.Expires
	h.timer = time.AfterFunc(time.Until(expires), func() { m.expire(id, expires) })
}

// expire ends a fault whose time is over, unless it was renewed meanwhile.
func (m *Manager) expire(id string, expires time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.held[id]
	if !ok || !h.fault.Expires.Equal(expires) {
		return
	}
	if _, err := m.end(context.Background(), h, fault.Expired); err != nil {
		m.cfg.Log.Error("fault could not be cleared at its end; trying again", "fault", id, "err", err)
		h.timer = time.AfterFunc(retryClear, func() { m.expire(id, expires) })
	}
}

// end takes h out of force and forgets it; when that fails, h stays and is marked.
func (m *Manager) end(ctx context.Context, h *held, state fault.State) (fault.Fault, error) {
	counters, _ := m.count(ctx, h)
	delete(m.held, h.fault.ID)
	if err := m.restore(ctx, h.slots()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.held[h.fault.ID] = h
		h.fault.Warnings = append(slices.DeleteFunc(h.fault.Warnings, func(w string) bool {
			return strings.HasPrefix(w, "clear failed")
		}), "clear failed: "+err.Error())
		return h.fault, fmt.Errorf("clear %s: %w", h.fault.ID, err)
	}
	if h.timer != nil {
		h.timer.Stop()
	}
	h.fault.State = state
	h.fault.Counters = counters
	kind := "cleared"
	if state == fault.Expired {
		kind = "expired"
	}
	m.publish(kind, h.fault)
	return h.fault, nil
}

// Clear ends the faults that sel names, and returns them. An id that nobody has
// is an error; a target or "all" without faults is not. A fault of another owner
// can be cleared by root, said by owner "".
func (m *Manager) Clear(ctx context.Context, sel fault.Selector, owner string) ([]fault.Fault, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ended []fault.Fault
	var errs []error
	matched := false
	for _, h := range m.inOrder() {
		if !selects(sel, h.fault) {
			continue
		}
		matched = true
		if owner != "" && h.fault.Spec.Owner != owner {
			if !sel.All {
				errs = append(errs, fmt.Errorf("clear: %w: fault %s belongs to %s", fault.ErrConflict, h.fault.ID, h.fault.Spec.Owner))
			}
			continue
		}
		f, err := m.end(ctx, h, fault.Cleared)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ended = append(ended, f)
	}
	if sel.ID != "" && !matched {
		return nil, m.unknownFault(sel.ID)
	}
	return ended, errors.Join(errs...)
}

func selects(sel fault.Selector, f fault.Fault) bool {
	return sel.All || sel.ID == f.ID || sel.Target != "" && sel.Target == f.Spec.Target
}

// unknownFault names the faults that there are.
func (m *Manager) unknownFault(id string) error {
	known := slices.Sorted(maps.Keys(m.held))
	if len(known) == 0 {
		return fmt.Errorf("fault %q: %w; there are none", id, ErrUnknownFault)
	}
	return fmt.Errorf("fault %q: %w; there are: %s", id, ErrUnknownFault, strings.Join(known, ", "))
}

// ErrUnknownFault is returned for an id that no fault has (any more).
var ErrUnknownFault = fmt.Errorf("unknown fault: %w", fs.ErrNotExist)

// Close clears every fault, refuses new ones and ends all watches. It is safe to
// call twice.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	_, err := m.Clear(ctx, fault.Selector{All: true}, "")
	m.events.close()
	return err
}

// Forget ends the faults of targets that are being taken down with their lab.
func (m *Manager) Forget(ctx context.Context, targets []string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, h := range m.inOrder() {
		if slices.Contains(targets, h.fault.Spec.Target) {
			_, err := m.end(ctx, h, fault.Cleared)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
