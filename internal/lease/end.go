package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// How long after a failed clearing the next try is made: twice as long each time.
const (
	firstRetry = time.Second
	maxRetry   = time.Minute
)

// ErrUnknownFault is returned for an id that no fault has (any more). It matches
// fs.ErrNotExist.
var ErrUnknownFault error = unknownFault{}

type unknownFault struct{}

func (unknownFault) Error() string        { return "unknown fault" }
func (unknownFault) Is(target error) bool { return target == fs.ErrNotExist }

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
	h, leave, err := m.enterFault(context.Background(), id)
	if err != nil {
		return // it has ended otherwise
	}
	defer m.endWithin(h)
	defer leave()
	if !h.fault.Expires.Equal(expires) {
		return
	}
	failpoint.At("lease.expire.begin")
	if _, err := m.end(context.Background(), h, fault.Expired, nil); err != nil {
		m.endLater(h, err)
	}
}

// endLater tries again to end a fault that must end and could not be. The caller holds the
// lane.
func (m *Manager) endLater(h *held, err error) {
	id := h.fault.ID
	m.cfg.Log.Error("fault could not be cleared at its end; trying again", "fault", id, "err", err)
	m.mu.Lock()
	defer m.mu.Unlock()
	if now := time.Now(); h.fault.Expires.After(now) {
		h.fault.Expires = now
	}
	expires := h.fault.Expires
	retry := min(firstRetry<<min(h.tries, 6), maxRetry)
	h.tries++
	if h.timer != nil {
		h.timer.Stop()
	}
	h.timer = time.AfterFunc(retry, func() { m.expire(id, expires) })
}

// end takes h out of force and forgets it; when that fails, h stays and is marked. by is
// the hold that asks for it, nil for others. The caller holds the lane.
func (m *Manager) end(ctx context.Context, h *held, state fault.State, by *Hold) (fault.Fault, error) {
	failpoint.At("lease.clear.begin")
	now, _ := m.count(ctx, h) // the last look; without it the one before stands
	m.mu.Lock()
	h.ending = true
	h.counted(now.counters)
	h.fault.Queued = now.queued
	if now.state != h.fault.State || h.fault.Reason == "" {
		h.fault.Reason = now.reason
	}
	m.mu.Unlock()
	err := m.restore(ctx, h)
	failpoint.At("lease.clear.restored")
	if err == nil {
		m.keepLog(ctx, h)
		err = m.offloadRestore(ctx, h)
	}
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		h.ending = false
		h.notes.ending = "clear failed: " + err.Error()
		h.fault.Warnings = h.warnings()
		return h.fault, fmt.Errorf("clear %s: %w", h.fault.ID, err)
	}
	failpoint.At("lease.clear.offload")
	return m.forget(ctx, h, state, by), nil
}

// forget takes h, which is no longer in force, out of the books.
func (m *Manager) forget(ctx context.Context, h *held, state fault.State, by *Hold) fault.Fault {
	m.recordEnd(ctx, h.fault.ID, state)
	failpoint.At("lease.clear.recorded")
	m.drop(h)
	m.mu.Lock()
	defer m.mu.Unlock()
	h.fault.State = state
	m.rememberEnd(h.fault.ID, state)
	m.keepRecord(h)
	kind := "cleared"
	if state == fault.Expired {
		kind = "expired"
	}
	m.publish(kind, h, by)
	if h.hold != nil {
		h.hold.last = h.fault
		h.hold.finish(nil)
	}
	return h.fault
}

// Clear ends the faults that sel names, and returns them. An id that this Manager
// never gave is an error; one that has ended, and a target or "all" without faults,
// are not; nor is a device without faults. owner is the Whose of who asks; a fault of
// another one can be cleared by root, said by owner "".
func (m *Manager) Clear(ctx context.Context, sel fault.Selector, owner string) ([]fault.Fault, error) {
	m.mu.Lock()
	kept := m.kept
	m.mu.Unlock()
	if kept {
		return nil, errKept
	}
	return m.clear(ctx, sel, owner, false)
}

// clear is Clear, and with closing also of what was handed over.
func (m *Manager) clear(ctx context.Context, sel fault.Selector, owner string, closing bool) ([]fault.Fault, error) {
	m.mu.Lock()
	var ids []string
	for _, h := range m.inOrder() {
		if h.named(sel) {
			ids = append(ids, h.fault.ID)
		}
	}
	unknown, gone := m.unknownFault(sel.ID), m.hasEnded(sel.ID)
	m.mu.Unlock()
	if sel.ID != "" && len(ids) == 0 && !gone {
		return nil, unknown
	}
	var ended []fault.Fault
	var errs []error
	for _, id := range ids {
		f, err := m.clearOne(ctx, id, sel, owner, closing)
		switch {
		case errors.Is(err, errKept): // as all that are left
			return ended, errors.Join(append(errs, err)...)
		case errors.Is(err, errNotYours):
		case err != nil:
			errs = append(errs, err)
		default:
			ended = append(ended, f)
		}
	}
	return ended, errors.Join(errs...)
}

// Named returns the faults that are held and that sel names, which Clear would end, oldest
// first and as they were seen last: the kernel is not asked.
func (m *Manager) Named(sel fault.Selector) []fault.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	var named []fault.Fault
	for _, h := range m.order {
		if h.named(sel) {
			named = append(named, h.fault)
		}
	}
	return named
}

// named reports whether sel names h. A device is one at which a place of h is: the one that
// has the name now, or had it when h was applied. The caller holds the lock.
func (h *held) named(sel fault.Selector) bool {
	switch s := h.fault.Spec; {
	case sel.All, sel.ID != "" && sel.ID == h.fault.ID, sel.Target != "" && slices.Contains(s.Aims(), sel.Target):
		return true
	case sel.Device == "":
		return false
	case s.Selector != nil && s.Selector.Name() == sel.Device:
		return true
	}
	return slices.ContainsFunc(h.places(), func(p target.Place) bool {
		return target.Selector{Namespace: p.Namespace, Device: p.Device}.Name() == sel.Device ||
			sel.Index != 0 && p.Index == sel.Index && p.Cookie == sel.Cookie
	})
}

// errNotYours passes over other owners' faults when all are cleared.
var errNotYours = errors.New("another owner's")

func (m *Manager) clearOne(ctx context.Context, id string, sel fault.Selector, owner string, closing bool) (fault.Fault, error) {
	h, leave, err := m.enterFault(ctx, id)
	if err != nil {
		if errors.Is(err, ErrUnknownFault) {
			err = errNotYours // it ended by itself meanwhile
		}
		return fault.Fault{}, err
	}
	defer m.endWithin(h)
	defer leave()
	if owner != "" && h.fault.Spec.Whose() != owner {
		if sel.All {
			return fault.Fault{}, errNotYours
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		return fault.Fault{}, fmt.Errorf("clear: %w", h.notYours())
	}
	if !closing {
		if err := m.claimEnd(h); err != nil {
			return fault.Fault{}, err
		}
	}
	return m.end(ctx, h, fault.Cleared, nil)
}

// hasEnded reports whether id was a fault's. The caller holds the lock.
func (m *Manager) hasEnded(id string) bool {
	if m.restored[id] {
		return m.held[id] == nil
	}
	number, ours := strings.CutPrefix(id, m.prefix)
	n, err := strconv.Atoi(number)
	return ours && err == nil && n > 0 && n <= m.nextID && m.held[id] == nil
}

// pastEnd is how and when a fault ended.
type pastEnd struct {
	id    string
	state fault.State
	at    time.Time
}

// rememberEnd keeps the end of a fault for who asks later: of the last maxRequests, for
// requestMemory. The caller holds the lock.
func (m *Manager) rememberEnd(id string, s fault.State) {
	m.ends = append(m.ends, pastEnd{id, s, time.Now()})
	first := max(0, len(m.ends)-maxRequests)
	for first < len(m.ends) && time.Since(m.ends[first].at) > requestMemory {
		first++
	}
	m.ends = slices.Delete(m.ends, 0, first)
}

// endedFault is of a fault that has ended. It matches ErrUnknownFault and fs.ErrNotExist.
type endedFault struct{ text string }

func (e endedFault) Error() string { return e.text }
func (e endedFault) Is(target error) bool {
	return target == ErrUnknownFault || target == fs.ErrNotExist
}

// unknownFault says how a fault ended, or names those that there are. The caller holds the
// lock.
func (m *Manager) unknownFault(id string) error {
	for _, e := range slices.Backward(m.ends) {
		if e.id != id || time.Since(e.at) > requestMemory {
			continue
		}
		verb := "was cleared"
		if e.state == fault.Expired {
			verb = "expired"
		}
		return endedFault{fmt.Sprintf("fault %s %s %s ago", id, verb, age(e.at))}
	}
	known := slices.Sorted(maps.Keys(m.held))
	if len(known) == 0 {
		return fmt.Errorf("%w %q: there are none", ErrUnknownFault, id)
	}
	return fmt.Errorf("%w %q: there are: %s", ErrUnknownFault, id, qdisc.Few(known))
}

// Retire ends the faults on targets and calls down, which takes the targets away;
// no fault can be applied to them meanwhile. A fault that could not be cleared does
// not keep down from being called, and is gone with its target when that succeeds.
func (m *Manager) Retire(ctx context.Context, targets []string, down func(context.Context) error) error {
	return m.RetireIf(ctx, targets, func([]fault.Fault) error { return nil }, down)
}

// RetireIf is Retire for who decides by the faults that there are: agree gets them when none
// can come any more, and with its error nothing has been done.
func (m *Manager) RetireIf(ctx context.Context, targets []string, agree func(on []fault.Fault) error, down func(context.Context) error) error {
	var names []string
	for _, name := range targets {
		names = append(names, packetLane(name), streamLane(name), serviceLane(name), requestLane(name))
	}
	leave, err := m.lanes.enter(ctx, names)
	if err != nil {
		return err
	}
	var on []*held
	defer func() {
		for _, h := range on {
			m.endWithin(h)
		}
	}()
	defer leave()
	m.mu.Lock()
	var devices []string
	var there []fault.Fault
	for _, h := range m.order {
		if slices.ContainsFunc(h.fault.Spec.Aims(), func(aim string) bool { return slices.Contains(targets, aim) }) {
			on, there = append(on, h), append(there, h.fault)
			for _, s := range h.slots {
				if s.lane != "" {
					devices = append(devices, s.lane)
				}
			}
		}
	}
	m.mu.Unlock()
	if err := agree(there); err != nil {
		return err
	}
	leaveDevices, err := m.lanes.enter(ctx, devices)
	if err != nil {
		return err
	}
	defer leaveDevices()
	var left []*held
	for _, h := range on {
		if err := m.claimEnd(h); err != nil {
			return err
		}
		if _, err := m.end(ctx, h, fault.Cleared, nil); err != nil {
			m.cfg.Log.Warn("a fault could not be cleared before its target goes", "fault", h.fault.ID, "err", err)
			left = append(left, h)
		}
	}
	m.mark(left, true) // nobody hands them over while the target goes
	if err := down(ctx); err != nil {
		m.mark(left, false)
		return err
	}
	for _, h := range left {
		m.forget(ctx, h, fault.Cleared, nil)
	}
	return nil
}

// mark says whether faults are about to be ended.
func (m *Manager) mark(hs []*held, ending bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range hs {
		h.ending = ending
	}
}

// Close clears every fault, refuses new ones and ends all watches. It is safe to
// call twice.
func (m *Manager) Close(ctx context.Context) error {
	m.mu.Lock()
	if m.closed = true; !m.shut {
		m.shut = true
		close(m.closing)
	}
	m.mu.Unlock()
	m.stop()
	m.looking.Wait()
	_, err := m.clear(ctx, fault.Selector{All: true}, "", true)
	m.mu.Lock()
	for _, h := range m.held { // what could not be cleared is not tried again
		if h.timer != nil {
			h.timer.Stop()
		}
		h.stopClock()
	}
	m.mu.Unlock()
	m.events.close()
	return err
}

// publish tells the watchers, and h's holder unless it was by. The caller holds the lock.
func (m *Manager) publish(kind string, h *held, by *Hold) {
	e := m.events.send(kind, h.fault)
	if h.hold != nil && h.hold != by && !h.hold.over {
		h.hold.tell(e, kind == "cleared" || kind == "expired")
	}
}
