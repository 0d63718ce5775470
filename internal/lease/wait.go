package lease

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
)

// waiter is an Apply in the line of those that wait for another fault's end. Its fields
// are guarded by the Manager's lock, but for the first two.
type waiter struct {
	began time.Time
	// patient waits, and so lets those who came first go first.
	patient bool
	// h is what it will apply, as it was aimed last.
	h *held
	// due has its turn: what it wants is kept free for it until it has tried.
	due bool
	// turn is closed then.
	turn chan struct{}
}

// wait returns when w has its turn to apply h, which conflict was in the way of, again. The
// error is the conflict when
// Spec.Wait is over, and fault.ErrBusy when too many wait.
func (m *Manager) wait(ctx context.Context, w *waiter, h *held, conflict error, waiting func(conflict error)) error {
	due, err := m.standInLine(w, h, conflict)
	if err != nil {
		return err
	}
	if !due && waiting != nil {
		waiting(conflict)
	}
	timer := time.NewTimer(time.Until(w.began.Add(h.fault.Spec.Wait)))
	defer timer.Stop()
	select {
	case <-w.turn:
		return nil
	case <-timer.C:
		return m.waitedEnough(w)
	case <-m.closing:
		return errClosed
	case <-ctx.Done():
		return fmt.Errorf("apply: waiting for another fault's end: %w", context.Cause(ctx))
	}
}

// standInLine puts w at the end of the line, or leaves it where it stands.
func (m *Manager) standInLine(w *waiter, h *held, conflict error) (due bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.h == nil {
		if n := len(m.line); n >= m.cfg.Limits.Waiting {
			return false, fault.WithHint(fmt.Errorf("apply: %w: %d wait for the end of a fault, which is the most (limits.waiting): %s",
				fault.ErrBusy, n, strings.TrimPrefix(conflict.Error(), "apply: ")), "'netemctl list' shows what is held")
		}
		if err := m.checkShare(h.fault.Spec, conflict); err != nil {
			return false, err
		}
		m.line = append(m.line, w)
	}
	seen := *h // h is its maker's
	w.h, w.due, w.turn = &seen, false, make(chan struct{})
	m.callNext() // what was in the way may have ended meanwhile
	return w.due, nil
}

// checkShare refuses the owner of s one more place in the line than he may have. The caller
// holds the lock.
func (m *Manager) checkShare(s fault.Spec, conflict error) error {
	mine := 0
	for _, w := range m.line {
		if w.h.fault.Spec.Whose() == s.Whose() {
			mine++
		}
	}
	if mine < OwnerShare(m.cfg.Limits.Waiting) {
		return nil
	}
	return fault.WithHint(fmt.Errorf("apply: %w: %d of %s wait for the end of a fault, which is the most for one owner (a quarter of limits.waiting): %s",
		fault.ErrBusy, mine, s.Owner, strings.TrimPrefix(conflict.Error(), "apply: ")), "'netemctl list' shows what is held")
}

// waitedEnough is the conflict as it is now; nil when w has got its turn just now.
func (m *Manager) waitedEnough(w *waiter) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.callNext() // a change that is under way may have freed it, and says so at its end
	if w.due {
		return nil
	}
	return fmt.Errorf("apply: waited %s: %w", time.Since(w.began).Round(100*time.Millisecond), m.inTheWay(w.h, w))
}

// leaveLine lets those behind w go on.
func (m *Manager) leaveLine(w *waiter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w.h != nil {
		m.line = slices.DeleteFunc(m.line, func(o *waiter) bool { return o == w })
		m.callNext()
	}
}

// callNext gives those their turn who have nothing in their way any more. The caller holds
// the lock.
func (m *Manager) callNext() {
	for _, w := range m.line {
		if w.due {
			continue
		}
		if other, first := m.blocker(w.h, w); other == nil && first == nil {
			w.due = true
			close(w.turn)
		}
	}
}

// Waiting returns how many Applies wait for the end of a fault.
func (m *Manager) Waiting() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.line)
}
