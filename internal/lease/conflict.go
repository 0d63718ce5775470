package lease

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
)

// MaxFaults is how many faults are held at once. Each may cost a device, and all are
// looked at twice a second.
const MaxFaults = 256

// admit takes h into the books, unless it cannot stand beside what is there. Nothing
// in the kernel has been changed by then.
func (m *Manager) admit(h *held) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errors.New("apply: the agent is shutting down")
	}
	if len(m.order) >= MaxFaults {
		return fmt.Errorf("apply: %d faults are held, which is the most; 'netemctl list' shows them", len(m.order))
	}
	for _, other := range m.order {
		if err := conflict(h, other); err != nil {
			return fmt.Errorf("apply: %w", err)
		}
	}
	m.nextID++
	h.fault.ID = fmt.Sprintf("%s%d", m.prefix, m.nextID)
	h.fault.Applied = time.Now()
	h.fault.Expires = h.fault.Applied.Add(h.fault.Spec.TTL)
	m.held[h.fault.ID] = h
	m.order = append(m.order, h)
	return nil
}

// conflict says why h cannot stand beside other. On the same packets, faults of one
// owner combine unless both set the same thing; on other packets of the same device
// all stand, unless a packet could belong to both: what it would meet then would be
// neither fault. Rules stand beside everything but themselves: what is chosen is, and
// the rest goes on as if they were not there.
func conflict(h, other *held) error {
	if sharesSlot(h, other) {
		if other.fault.Spec.Owner != h.fault.Spec.Owner {
			return fmt.Errorf("%w: %s is held by %s with %s; see 'netemctl show %s'", fault.ErrConflict,
				h.fault.Spec.TargetName(), other.fault.Spec.Owner, describe(other.fault), other.fault.ID)
		}
		if rule := sameRule(h.fault.Spec, other.fault.Spec); len(rule) > 0 {
			return fmt.Errorf("%w: '%s' is done by %s already; 'netemctl packets %s' shows what it did, 'netemctl clear %s' ends it", fault.ErrConflict,
				rule[0], describe(other.fault), other.fault.ID, other.fault.ID)
		}
		if fields := sameFields(h.fault.Spec, other.fault.Spec); len(fields) > 0 {
			return fmt.Errorf("%w: %s is set by %s already; 'netemctl change %s' alters it, 'netemctl clear %s' ends it", fault.ErrConflict,
				strings.Join(fields, ", "), describe(other.fault), other.fault.ID, other.fault.ID)
		}
	}
	for _, a := range h.slots {
		for _, b := range other.slots {
			if meet(a, b) {
				return fmt.Errorf("%w: at the %s, %s overlaps %s, which is held by %s with %s; see 'netemctl show %s'; "+
					"exclude the one's flow from the other, or clear it: 'netemctl clear %s'", fault.ErrConflict,
					a.place, a.place.Match, b.place.Match, other.fault.Spec.Owner, describe(other.fault), other.fault.ID, other.fault.ID)
			}
		}
	}
	return nil
}

// meet reports whether a packet can pass two places that are not the same.
func meet(a, b slot) bool {
	p, q := a.place, b.place
	return !a.alone() && !b.alone() && a.lane == b.lane && p.Hook == q.Hook && a.match != b.match &&
		p.Match.Overlaps(q.Match) && !p.Match.Mirrors(q.Match)
}

func sharesSlot(a, b *held) bool {
	return slices.ContainsFunc(a.slots, func(s slot) bool {
		return slices.ContainsFunc(b.slots, func(o slot) bool { return o.key == s.key })
	})
}

// sameFields names what both a and b set.
func sameFields(a, b fault.Spec) []string {
	if a.Packet != nil && b.Packet != nil {
		_, fields := a.Packet.Merge(*b.Packet)
		return fields
	}
	var fields []string
	for _, t := range a.Toxics {
		for _, u := range b.Toxics {
			if t.Key() == u.Key() {
				fields = append(fields, "toxic "+t.Key())
			}
		}
	}
	return fields
}

func describe(f fault.Fault) string {
	return fmt.Sprintf("fault %s (applied %s ago, ends in %s)", f.ID,
		time.Since(f.Applied).Round(time.Second), time.Until(f.Expires).Round(time.Second))
}
