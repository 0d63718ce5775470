package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/target"
)

// lookUpAll looks the host names of what is held up again, those of one selector once,
// so that faults on the same packets stay together.
func (m *Manager) lookUpAll(ctx context.Context) {
	m.mu.Lock()
	selectors, ids := map[string]target.Selector{}, map[string][]string{}
	moving := map[string][]standing{}
	for _, h := range m.order {
		if h.target.Moves {
			moving[h.fault.Spec.Target] = append(moving[h.fault.Spec.Target], standing{h.fault.ID, h.fault.Spec, h.target})
		}
		if s := h.fault.Spec.Selector; s != nil && s.NeedsLookup() {
			selectors[s.String()] = *s
			ids[s.String()] = append(ids[s.String()], h.fault.ID)
		}
	}
	m.mu.Unlock()
	var looking sync.WaitGroup // a name server that hangs holds up no other's names
	for key, s := range selectors {
		looking.Go(func() {
			match, err := s.Match(ctx, m.cfg.Lookup)
			for _, id := range ids[key] {
				if ctx.Err() == nil {
					m.follow(ctx, id, match, err)
				}
			}
		})
	}
	for _, on := range moving {
		looking.Go(func() {
			t, err := m.cfg.Resolve(ctx, on[0].spec)
			for _, h := range on {
				if ctx.Err() == nil {
					m.follow(ctx, h.id, t.To.Match, errors.Join(err, otherWay(t, h.target, err)))
				}
			}
		})
	}
	looking.Wait()
}

// standing is a fault on a target that moves, and where it stands.
type standing struct {
	id     string
	spec   fault.Spec
	target target.Target
}

// otherWay is an error where a target that moves is reached by another device now. The fault
// stays where it is, and says so: the engines' places do not move between devices.
func otherWay(now, before target.Target, err error) error {
	if err != nil || now.To.Index == before.To.Index && now.To.Cookie == before.To.Cookie && now.To.Hook == before.To.Hook {
		return nil
	}
	return fmt.Errorf("its packets leave by %s now; apply the fault anew to have it there", now.To.Device)
}

// follow moves a fault to what its host names stand for now. What cannot be done
// leaves the fault where it is, with a warning.
func (m *Manager) follow(ctx context.Context, id string, match target.Match, err error) {
	h, leave, enterErr := m.enterFault(ctx, id)
	if enterErr != nil {
		return
	}
	defer leave()
	if h.fault.State == fault.Lost {
		return
	}
	moved := false
	if err == nil {
		moved, err = m.move(ctx, h, match)
	}
	note := ""
	switch {
	case err == nil:
	case moved:
		note = "the addresses that its host names had before could not be left: " + err.Error()
	default:
		note = "its host names could not be followed, the addresses from before stand: " + err.Error()
	}
	if err != nil {
		m.cfg.Log.Warn("host names", "fault", id, "moved", moved, "err", err)
	}
	m.note(h, func(n *notes) { n.lookup = note })
	if moved {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.publish("changed", h, nil)
	}
}

// move takes h to match: in one step where its engine can, else it is put into force there
// first, then taken away from where it was. Either way no packet that is meant both before
// and after goes unimpaired meanwhile. When h was not moved it is as before. The caller
// holds the lane.
func (m *Manager) move(ctx context.Context, h *held, match target.Match) (moved bool, err error) {
	after := held{fault: h.fault, target: h.target, group: h.group}
	after.target.To.Match, after.target.From.Match = match, match.Reverse()
	places, err := placesFor(after.target, h.fault.Spec)
	if err != nil {
		return false, err
	}
	after.slots = slotsFor(h.fault.Spec, places)
	came, left := missing(after.slots, h.slots), missing(h.slots, after.slots)
	if len(came)+len(left) == 0 {
		return false, m.leave(ctx, h, nil)
	}
	if m.cfg.Protect != nil {
		if err := m.cfg.Protect(ctx, h.fault.Spec, places); err != nil {
			return false, err
		}
	}
	m.mu.Lock()
	err = m.fits(h, &after)
	m.mu.Unlock()
	if err != nil {
		return false, err
	}
	seen, err := m.count(ctx, h)
	if err != nil {
		return false, err
	}
	failpoint.At("lease.follow.begin")
	if err := m.cfg.Journal.Intend(ctx, h.fault, slices.Concat(h.allPlaces(), places)); err != nil {
		return false, err
	}
	failpoint.At("lease.follow.intended")
	defer m.recordAsIs(ctx, h)
	before := held{target: h.target, slots: h.slots}
	m.take(h, after)
	if m.rematch(ctx, h, left, came) {
		left = nil
	} else {
		for _, s := range came {
			if err = m.set(ctx, h, s, m.at(s)); err != nil {
				m.take(h, before)
				return false, errors.Join(err, m.leave(ctx, h, came))
			}
		}
	}
	failpoint.At("lease.follow.came")
	err = m.leave(ctx, h, left)
	failpoint.At("lease.follow.left")
	m.notePlaces(h)
	m.rebase(ctx, h)
	m.mu.Lock()
	defer m.mu.Unlock()
	h.carried = seen.counters
	h.counted(seen.counters)
	return true, err
}

// rematcher is an engine that can give the fault at a place other packets in one step,
// so that what waits in its queue keeps its order. After an error the fault is as before.
type rematcher interface {
	Rematch(ctx context.Context, p target.Place, m target.Match) error
}

// rematch moves h from the slots that it left to those that it came to, where its engine
// can do that. It is all or nothing; what another fault stands on is not moved.
func (m *Manager) rematch(ctx context.Context, h *held, left, came []slot) bool {
	e, ok := able[rematcher](m.cfg.Engines[h.fault.Engine])
	if !ok || len(left) != len(came) || h.fault.Spec.Content != nil {
		return false
	}
	for i, s := range left {
		// h has taken what it came to, and stands there alone.
		if s.index != came[i].index || s.place.Owned || len(m.at(s)) > 0 || len(m.at(came[i])) != 1 {
			return false
		}
	}
	for i, s := range left {
		err := e.Rematch(ctx, s.place, came[i].place.Match)
		if err == nil {
			continue
		}
		m.cfg.Log.Info("a fault does not move in one step", "fault", h.fault.ID, "place", s.place.String(), "err", err)
		ctx, cancel := undoing(ctx)
		defer cancel()
		for k := range i { // what cannot go back is set anew and cleared, as without a Rematch
			if err := e.Rematch(ctx, came[k].place, left[k].place.Match); err != nil {
				m.cfg.Log.Warn("a fault does not move back", "fault", h.fault.ID, "place", came[k].place.String(), "err", err)
			}
		}
		return false
	}
	return true
}

// missing are the slots of a that b has not.
func missing(a, b []slot) []slot {
	return slices.DeleteFunc(slices.Clone(a), func(s slot) bool {
		return slices.ContainsFunc(b, func(o slot) bool { return o.key == s.key })
	})
}

// take gives h the target and slots of from.
func (m *Manager) take(h *held, from held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.target, h.slots, h.gone = from.target, from.slots, from.gone
	m.callNext()
}

// leave takes h away from slots that are no longer its own, and from those that it
// could not leave before. The caller holds the lane.
func (m *Manager) leave(ctx context.Context, h *held, slots []slot) error {
	ctx, cancel := undoing(ctx)
	defer cancel()
	var stuck []slot
	var errs []error
	for _, s := range slices.Concat(h.stale, slots) {
		if !h.gone && slices.ContainsFunc(h.slots, func(o slot) bool { return o.key == s.key }) {
			continue // it came back
		}
		if err := m.set(ctx, h, s, m.at(s)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			stuck, errs = append(stuck, s), append(errs, err)
		}
	}
	m.keepLeft(ctx, h, slots)
	m.mu.Lock()
	defer m.mu.Unlock()
	h.stale = stuck
	return errors.Join(errs...)
}

// fits reports whether h may become after. Faults with the same host names come along. The
// caller holds the lock.
func (m *Manager) fits(h, after *held) error {
	for _, other := range m.order {
		if other == h || sameSelector(other, h) {
			continue
		}
		if err := conflict(after, other); err != nil {
			return fmt.Errorf("follow: %w", err)
		}
	}
	return nil
}

func sameSelector(a, b *held) bool {
	s, t := a.fault.Spec.Selector, b.fault.Spec.Selector
	if s == nil && t == nil {
		return a.target.Moves && a.fault.Spec.Target == b.fault.Spec.Target
	}
	return s != nil && t != nil && s.String() == t.String()
}

// adopt gives h the addresses of a fault that is held with the same host names, so that
// both stand on the same packets; they move together later. The caller holds the lane.
func (m *Manager) adopt(h *held) {
	if !h.fault.Spec.Selector.NeedsLookup() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range m.order {
		if !sameSelector(other, h) || deviceLane(other.target.To) != deviceLane(h.target.To) {
			continue
		}
		t := h.target
		t.To.Match, t.From.Match = other.target.To.Match, other.target.From.Match
		if places, err := placesFor(t, h.fault.Spec); err == nil {
			h.target, h.slots = t, slotsFor(h.fault.Spec, places)
			return
		}
	}
}
