package lease

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// Keep returns the faults that the next agent is to put back, oldest first, and refuses
// from then on whatever would change them; Close is still to be called, and leaves the
// kernel clean as always. What a client holds is not among them: its client goes with this
// agent. Nor is what is still being applied, which is refused then. Who keeps them, with ID, Spec, Applied and Expires, gives each to Restore.
func (m *Manager) Keep(ctx context.Context) []fault.Fault {
	failpoint.At("lease.keep.begin")
	m.mu.Lock()
	m.closed, m.kept = true, true
	m.mu.Unlock()
	m.stop() // nobody follows host names or repairs any more, either
	m.looking.Wait()
	m.lookAtAll(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	var kept []fault.Fault
	for _, h := range m.order {
		if h.whole && h.hold == nil && !h.ending && time.Now().Before(h.fault.Expires) {
			kept = append(kept, h.fault)
		}
	}
	return kept
}

// Restore puts back a fault that another life of the agent kept, under the same id and
// request id, and with the time that it has left. One whose time is over by now is told as expired, and is
// no error.
func (m *Manager) Restore(ctx context.Context, kept fault.Fault) (fault.Fault, error) {
	failpoint.At("lease.restore.begin")
	if kept.ID == "" {
		return fault.Fault{}, &qdisc.FieldError{Field: "id", Want: "the id of a fault"}
	}
	if err := kept.Spec.Validate(); err != nil {
		return fault.Fault{}, fmt.Errorf("restore %s: %w", kept.ID, err)
	}
	h := &held{fault: fault.Fault{ID: kept.ID, Spec: kept.Spec, State: fault.Active, Applied: kept.Applied, Expires: kept.Expires}}
	h.fault.Spec.Wait = 0
	m.mu.Lock()
	if m.held[kept.ID] != nil {
		m.mu.Unlock()
		return fault.Fault{}, fmt.Errorf("restore %s: %w", kept.ID, fs.ErrExist)
	}
	m.restored[kept.ID] = true
	if !time.Now().Before(kept.Expires) {
		h.fault.State = fault.Expired
		m.publish("expired", h, nil)
		m.remember(h.fault)
		m.mu.Unlock()
		m.recordEnd(ctx, kept.ID, fault.Expired)
		return h.fault, nil
	}
	m.mu.Unlock()
	if err := m.apply(ctx, h, &waiter{began: time.Now()}, false); err != nil {
		return fault.Fault{}, fmt.Errorf("restore %s: %w", kept.ID, err)
	}
	failpoint.At("lease.restore.done")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remember(h.fault)
	return h.fault, nil
}
