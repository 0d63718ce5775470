package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
)

// How a fault with Spec.Repair is put back: at most once a second, and no more than five
// times unless it stood for a while in between, so that two who want something else of a
// device do not hand it over to each other for good.
const (
	repairEvery = time.Second
	repairTries = 5
	steadyTime  = 10 * time.Second
	repairTime  = 10 * time.Second
)

// mending is what was tried to put a fault back. It is guarded by the Manager's lock.
type mending struct {
	running bool
	tries   int
	last    time.Time
	// unsaid says that the warnings do not have the last note.
	unsaid bool
	// reattached says that it was put where its target leads by now, which a look has still to
	// tell; over that it will not come back.
	reattached, over bool
}

// mend puts h back, in the background, where a look found it gone or changed and it may be
// tried. The caller holds the lock.
func (m *Manager) mend(h *held) {
	now := time.Now()
	if h.mending.unsaid {
		h.mending.unsaid, h.fault.Warnings = false, h.warnings()
	}
	switch r := &h.mending; {
	case r.running:
	case h.fault.State == fault.Lost && h.fault.Spec.Reattach:
		m.seek(h, now)
	case !h.fault.Spec.Repair:
	case h.fault.State == fault.Active:
		if r.tries > 0 && now.Sub(r.last) >= steadyTime {
			r.tries, h.notes.repair = 0, ""
			h.fault.Warnings = h.warnings()
		}
	case r.tries >= repairTries:
		if h.notes.repair == "" {
			h.notes.repair = fmt.Sprintf("it was put back %d times and did not last, which is not tried again", r.tries)
			h.fault.Warnings = h.warnings()
		}
	case m.closed, h.ending, now.Sub(r.last) < repairEvery, !now.Before(h.fault.Expires):
	default:
		m.mendNow(h, now)
	}
}

// mendNow begins a try. The caller holds the lock.
func (m *Manager) mendNow(h *held, now time.Time) {
	h.mending.running, h.mending.last = true, now
	id := h.fault.ID
	m.background(func(ctx context.Context) { m.repair(ctx, h, id) })
}

// repair is mend in the background.
func (m *Manager) repair(ctx context.Context, h *held, id string) {
	ctx, cancel := context.WithTimeoutCause(ctx, repairTime, errors.New("repair took too long"))
	defer cancel()
	m.mu.Lock()
	seeking := h.fault.State == fault.Lost && h.fault.Spec.Reattach
	m.mu.Unlock()
	tried, err := m.putBack(ctx, h, id)
	if err != nil && !seeking { // that it is not there yet needs no line twice a second
		m.cfg.Log.Warn("a fault could not be put back", "fault", id, "err", err)
	}
	m.look(ctx, id) // which tells that it is repaired
	if seeking {
		m.sought(ctx, h, id, err)
		return
	}
	m.repaired(ctx, h, id, tried, err)
}

// repaired notes what came of a try. Where the lane is not to be had soon, as while the
// Manager stops or somebody hangs in it, the next look tells it.
func (m *Manager) repaired(ctx context.Context, h *held, id string, tried bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	_, leave, busy := m.enterFault(ctx, id)
	if busy == nil {
		defer leave()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &h.mending
	r.running = false
	if tried {
		r.tries++
	}
	switch {
	case err != nil && r.tries >= repairTries:
		h.notes.repair = fmt.Sprintf("it could not be put back, which was tried %d times: %s", r.tries, err)
	case err != nil:
		h.notes.repair = "it could not be put back: " + err.Error()
	case tried:
		h.notes.repair = ""
	}
	if r.unsaid = busy != nil; !r.unsaid {
		h.fault.Warnings = h.warnings()
	}
}

// putBack puts h into force again: where it was, or where the same names lead to now when
// that place is gone. tried says that something was done to the kernel for it.
func (m *Manager) putBack(ctx context.Context, h *held, id string) (tried bool, err error) {
	m.mu.Lock()
	lost := h.fault.State == fault.Lost
	m.mu.Unlock()
	if lost && h.fault.Spec.Outage == nil {
		return m.reattach(ctx, h)
	}
	_, leave, err := m.enterFault(ctx, id)
	if err != nil {
		return false, nil // it has ended
	}
	defer leave()
	if now, err := m.count(ctx, h); err != nil || now.state != fault.Drifted && (!lost || now.state != fault.Lost) {
		return false, err
	}
	failpoint.At("lease.repair.begin")
	if err := m.cfg.Journal.Intend(ctx, h.fault, h.allPlaces()); err != nil {
		return false, err
	}
	failpoint.At("lease.repair.intended")
	err = m.enforce(ctx, h, "lease.repair.place")
	m.notePlaces(h)
	m.recordAsIs(ctx, h)
	failpoint.At("lease.repair.recorded")
	return true, err
}

// reattach is putBack of a fault whose place is gone. What cannot be found is not tried.
func (m *Manager) reattach(ctx context.Context, h *held) (tried bool, err error) {
	after, leave, err := m.enterMoved(ctx, h)
	if after == nil || err != nil {
		return false, err
	}
	defer leave()
	if now, err := m.count(ctx, h); err != nil || now.state != fault.Lost {
		return false, err
	}
	if err := h.sameProcess(after); err != nil {
		return false, err
	}
	if err := m.mayReattach(ctx, h, after); err != nil {
		return false, err
	}
	failpoint.At("lease.repair.begin")
	if err := m.cfg.Journal.Intend(ctx, after.fault, slices.Concat(h.allPlaces(), after.places())); err != nil {
		return false, err
	}
	failpoint.At("lease.repair.intended")
	before := held{fault: h.fault, target: h.target, slots: h.slots, gone: h.gone}
	m.take(h, *after)
	m.put(h, after.fault)
	if err = m.offloadAnew(ctx, h); err == nil {
		err = m.enforce(ctx, h, "lease.repair.place")
	}
	if err != nil {
		came := missing(h.slots, before.slots)
		if before.gone { // it was in force nowhere
			came = h.slots
		}
		m.put(h, before.fault)
		m.take(h, before)
		err = errors.Join(err, m.leave(ctx, h, came))
		m.recordAsIs(ctx, h)
		return true, err
	}
	err = m.leave(ctx, h, missing(before.slots, h.slots))
	m.notePlaces(h)
	m.rebase(ctx, h)
	m.mu.Lock()
	h.carried = before.fault.Counters
	h.counted(before.fault.Counters)
	h.mending.reattached = h.fault.Spec.Reattach
	h.cameBack(before.fault.Reason)
	m.mu.Unlock()
	m.recordAsIs(ctx, h)
	failpoint.At("lease.repair.recorded")
	return true, err
}

// enterMoved aims h anew, and enters the lanes of where it was and where it will be. The
// answer is nil when h has ended.
func (m *Manager) enterMoved(ctx context.Context, h *held) (after *held, leave func(), err error) {
	for {
		m.mu.Lock()
		after = &held{fault: h.fault, group: h.group}
		old, ended := h.lanes(), m.held[h.fault.ID] != h
		m.mu.Unlock()
		if ended {
			return nil, nil, nil
		}
		if err := m.aim(ctx, after); err != nil {
			return nil, nil, h.lostForGood(err)
		}
		keys := after.lanes()
		if leave, err = m.lanes.enter(ctx, slices.Concat(old, keys)); err != nil {
			return nil, nil, err
		}
		if after.fault.Spec.Selector == nil { // it may have gone again, or come elsewhere
			err = m.aim(ctx, after)
		} else {
			m.adopt(after)
		}
		m.mu.Lock()
		ended = m.held[h.fault.ID] != h
		same := slices.Equal(old, h.lanes()) && slices.Equal(keys, after.lanes())
		after.fault = h.fault
		m.mu.Unlock()
		if err == nil && !ended && same {
			after.fault.Placement = after.placement()
			return after, leave, nil
		}
		leave()
		if err != nil || ended {
			return nil, nil, err
		}
	}
}

// mayReattach refuses a place where the fault could not have been applied.
func (m *Manager) mayReattach(ctx context.Context, h, after *held) error {
	if h.fault.Spec.Request != nil {
		return m.planRequests(after)
	}
	if !h.isPacket() {
		return m.planStream(after)
	}
	if m.cfg.Protect != nil {
		if err := m.cfg.Protect(ctx, h.fault.Spec, after.places()); err != nil {
			return err
		}
	}
	if h.nowhere() { // which engine it had says nothing about this life
		if err := m.chooseEngine(ctx, after); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range m.order {
		if other == h {
			continue
		}
		if err := conflict(after, other); err != nil {
			return err
		}
		if other.isPacket() && sharesSlot(after, other) && other.fault.Engine != after.fault.Engine {
			return fmt.Errorf("%w: engine %s carries %s at the same place", fault.ErrConflict, other.fault.Engine, other.describe())
		}
	}
	return nil
}

// offloadAnew switches segmentation off where h is now, instead of where it was.
func (m *Manager) offloadAnew(ctx context.Context, h *held) error {
	if !h.isPacket() || h.fault.Spec.Offload == "" && len(h.fault.Offloads) == 0 {
		return nil
	}
	f := h.fault
	err := m.offloadRestore(ctx, h)
	if err == nil {
		err = m.offloadRead(ctx, h, &f)
	}
	if err != nil {
		return err
	}
	m.put(h, f)
	return m.offloadOff(ctx, h)
}
