package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// keepTime bounds how long a Keep waits, of all faults together, for the calls in progress:
// a device or a proxy that hangs keeps no other fault from being handed over.
const keepTime = 5 * time.Second

// errKept refuses the end of a fault that was handed over.
var errKept = errors.New("clear: the agent is shutting down, and has handed its faults over to the next")

// Keep returns the faults that the next agent is to put back, oldest first, each as it was
// acknowledged last, and refuses from then on whatever would change them; Close is still to
// be called, and leaves the kernel clean as always. Calls in progress are waited for, some
// seconds at most; one that takes longer is refused at its end, or its fault is not among
// those that are returned. What a client holds, and what stands within that, is not among
// them: its client goes with this agent. Nor is what is still being applied, which is refused then. Who keeps them, with ID,
// Spec, Applied and Expires, gives each to Restore.
func (m *Manager) Keep(ctx context.Context) []fault.Fault {
	failpoint.At("lease.keep.begin")
	m.mu.Lock()
	m.closed, m.kept = true, true
	all := m.inOrder()
	ids := make([]string, len(all))
	for i, h := range all {
		ids[i] = h.fault.ID
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, keepTime, errors.New("keeping the faults took too long"))
	defer cancel()
	m.stop() // nobody follows host names or repairs any more, either
	m.waitIdle(ctx)
	var kept []fault.Fault
	for i, h := range all {
		if f, ok := m.keep(ctx, h, ids[i]); ok {
			kept = append(kept, f)
		}
	}
	return kept
}

// waitIdle waits for what is done in the background, which was told to stop.
func (m *Manager) waitIdle(ctx context.Context) {
	idle := make(chan struct{})
	go func() { // Close waits for the same
		m.looking.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// keep marks h as handed over, unless it is not to be. What is under way in its lane is let
// finish, as long as ctx lasts: whoever has not come to where he cannot go back by then finds
// the mark there.
func (m *Manager) keep(ctx context.Context, h *held, id string) (fault.Fault, bool) {
	if _, leave, err := m.enterFault(ctx, id); err == nil {
		defer leave()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[id] != h || !h.whole || h.group != nil || h.ending || !time.Now().Before(h.fault.Expires) {
		return fault.Fault{}, false
	}
	h.kept = true
	if h.changing != nil {
		return *h.changing, true
	}
	return h.fault, true
}

// claimEnd makes sure that h, which is about to be ended, is not handed over as well; it is
// no longer part of what is put into force then. The error is errKept where it was.
func (m *Manager) claimEnd(h *held) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.kept {
		return errKept
	}
	h.ending = true
	return nil
}

// Restore puts back a fault that another life of the agent kept, under the same id and
// request id, and with the time that it has left. One whose time is over by now is told as
// expired, and is no error. One that cannot be put back is an error, and is listed as lost,
// with the reason, until its time is over: a repair may bring it back.
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
	h.resumed = true
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
		m.rememberEnd(kept.ID, fault.Expired)
		m.mu.Unlock()
		m.recordEnd(ctx, kept.ID, fault.Expired)
		return h.fault, nil
	}
	m.mu.Unlock()
	h.wind(time.Since(kept.Applied))
	if err := m.apply(ctx, h, &waiter{began: time.Now()}, false); err != nil {
		m.listLost(kept, err)
		return fault.Fault{}, fmt.Errorf("restore %s: %w", kept.ID, err)
	}
	failpoint.At("lease.restore.done")
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remember(h.fault)
	return h.fault, nil
}

// listLost takes a fault of another life into the books that could not be put back: nothing of
// it is in the kernel, and it is nowhere until it is repaired.
func (m *Manager) listLost(kept fault.Fault, why error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.held[kept.ID] != nil { // what could not be undone is tried to be ended
		return
	}
	h := &held{whole: true, resumed: true, inForce: time.Now(), fault: fault.Fault{
		ID: kept.ID, Spec: kept.Spec, State: fault.Lost, Reason: "it could not be put back after a restart: " + why.Error(),
		Engine: kept.Engine, EngineReason: kept.EngineReason, Placement: kept.Placement, Applied: kept.Applied, Expires: kept.Expires,
	}}
	h.fault.Spec.Wait = 0
	h.wind(time.Since(kept.Applied))
	h.fault.Warnings = h.warnings()
	m.held[kept.ID] = h
	m.order = append(m.order, h)
	m.schedule(h)
	m.startClock(h)
	m.remember(h.fault)
	m.publish("lost", h, nil)
}

// nowhere says that h is at no place, since it could not be put back.
func (h *held) nowhere() bool { return len(h.slots) == 0 }
