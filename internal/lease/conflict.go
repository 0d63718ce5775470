package lease

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// obstacle is a conflict that ends when another fault does, so that it can be waited for.
type obstacle struct{ error }

func (o obstacle) Unwrap() error { return o.error }

// obstructs makes err, a conflict of h with other, one that can be waited for, with the hint
// how long, unless h cannot wait or has. The caller holds the lock.
func obstructs(h, other *held, err error) error {
	hint := ""
	switch {
	case h.fault.Spec.Wait > 0, h.together != nil:
	case other.group != nil:
		hint = "'--wait 10m' waits for the end of its command, 10 minutes at most"
	default:
		hint = fmt.Sprintf("'--wait %s' waits for its end", qdisc.FormatDuration(left(other)))
	}
	return obstacle{fault.WithHint(err, hint)}
}

// admit takes h into the books, where its time ends it, unless it cannot stand beside what
// is there. Nothing in the kernel has been changed by then.
func (m *Manager) admit(h *held, w *waiter) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errClosed
	}
	if err := m.checkRoom(h.fault.Spec); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	m.enterGroup(h)
	if err := m.inTheWay(h, w); err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if h.fault.ID == "" { // of another life it has one
		m.number(h)
	}
	m.held[h.fault.ID] = h
	m.order = append(m.order, h)
	m.schedule(h) // whatever becomes of who applies it
	m.callNext()  // its owner's may join it
	return nil
}

// number gives h its id and its time. The caller holds the lock.
func (m *Manager) number(h *held) {
	for taken := true; taken; taken = m.held[h.fault.ID] != nil || m.restored[h.fault.ID] {
		m.nextID++
		h.fault.ID = fmt.Sprintf("%s%d", m.prefix, m.nextID)
	}
	h.fault.Applied = time.Now()
	h.fault.Expires = h.fault.Applied.Add(h.fault.Spec.TTL)
}

// errClosing refuses what comes too late, errClosed an Apply.
var (
	errClosing = errors.New("the agent is shutting down")
	errClosed  = fmt.Errorf("apply: %w", errClosing)
)

// inTheWay says what h, for which w stands, has to wait for. The caller holds the lock.
func (m *Manager) inTheWay(h *held, w *waiter) error {
	switch other, first := m.blocker(h, w); {
	case other != nil:
		return obstructs(h, other, conflict(h, other))
	case first != nil:
		err := fmt.Errorf("%w: %s is waited for by %s since %s", fault.ErrConflict, h.fault.Spec.TargetName(), first.h.fault.Spec.Owner, age(first.began))
		if h.fault.Spec.Wait == 0 && h.together == nil {
			err = fault.WithHint(err, "'--wait 30s' stands in line")
		}
		return obstacle{err}
	}
	return nil
}

// blocker finds what is in the way of h: a fault that is held, or somebody who came first.
// The caller holds the lock.
func (m *Manager) blocker(h *held, w *waiter) (*held, *waiter) {
	beside := false // h joins a fault of its owner, who has the place already
	for _, other := range m.order {
		if clash(h, other) {
			return other, nil
		}
		beside = beside || sharesSlot(h, other)
	}
	if beside {
		return nil, nil
	}
	for _, first := range m.line {
		if first == w {
			break
		}
		if !first.due && !w.patient {
			continue // who does not wait takes what is free
		}
		if clash(h, first.h) {
			return nil, first
		}
	}
	return nil, nil
}

// clash reports whether there is a conflict. It is asked far more often than what it is.
func clash(h, other *held) bool {
	if sharesSlot(h, other) {
		return h.fault.Spec.Whose() != other.fault.Spec.Whose() || h.group != other.group || conflict(h, other) != nil
	}
	return slices.ContainsFunc(h.slots, func(a slot) bool {
		return slices.ContainsFunc(other.slots, func(b slot) bool { return meet(a, b) })
	})
}

// conflict says why h cannot stand beside other. On the same packets, faults of one
// owner combine unless both set the same thing, or a command holds one of them and the other
// was not made within that; on other packets of the same device
// all stand, unless a packet could belong to both: what it would meet then would be
// neither fault. Rules stand beside everything but themselves: what is chosen is, and
// the rest goes on as if they were not there.
func conflict(h, other *held) error {
	if other.gone { // it is in force nowhere
		return nil
	}
	if sharesSlot(h, other) {
		if err := engineConflict(h, other); err != nil {
			return err
		}
		if err := foreign(h, other); err != nil {
			return err
		}
		if rule := sameRule(h.fault.Spec, other.fault.Spec); len(rule) > 0 {
			return fmt.Errorf("%w: '%s' is done by %s already; 'netemctl packets %s' shows what it did, 'netemctl clear %s' ends it", fault.ErrConflict,
				rule[0], other.describe(), other.fault.ID, other.fault.ID)
		}
		if names := sameServices(h.fault.Spec, other.fault.Spec); len(names) > 0 {
			return fmt.Errorf("%w: %s is made to fail by %s already; 'netemctl clear %s' ends it", fault.ErrConflict, strings.Join(names, ", "), other.describe(), other.fault.ID)
		}
		if fields := sameFields(h, other); len(fields) > 0 && h.fault.Spec.Packet == nil {
			return fmt.Errorf("%w: %s is set by %s already; 'netemctl clear %s' ends it", fault.ErrConflict, strings.Join(fields, ", "), other.describe(), other.fault.ID)
		} else if len(fields) > 0 {
			return fmt.Errorf("%w: %s is set by %s already; 'netemctl change %s' alters it, 'netemctl clear %s' ends it", fault.ErrConflict,
				strings.Join(fields, ", "), other.describe(), other.fault.ID, other.fault.ID)
		}
	}
	for _, a := range h.slots {
		for _, b := range other.slots {
			if meet(a, b) {
				return fmt.Errorf("%w: at the %s, %s overlaps %s, which is held by %s with %s; see 'netemctl show %s'; "+
					"exclude the one's flow from the other, or clear it: 'netemctl clear %s'", fault.ErrConflict,
					a.place, a.place.Match, b.place.Match, other.holder(), other.describe(), other.fault.ID, other.fault.ID)
			}
		}
	}
	return nil
}

// engineConflict says that h asks for another engine than the one that carries other,
// with which it shares a place.
func engineConflict(h, other *held) error {
	want, is := h.fault.Spec.Engine, other.fault.Engine
	if want == "" || want == fault.Auto || is == "" || want == is {
		return nil
	}
	return fmt.Errorf("%w: engine %s carries a fault on this flow already, asked for %s: it is held by %s with %s; see 'netemctl show %s'", fault.ErrConflict,
		is, want, other.holder(), other.describe(), other.fault.ID)
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

// sameFields names what both a and b set at one of their places, at any time.
func sameFields(a, b *held) []string {
	var fields []string
	if a.fault.Spec.Packet != nil && b.fault.Spec.Packet != nil {
		for _, s := range a.slots {
			for _, o := range b.slots {
				if s.key != o.key {
					continue
				}
				_, both := a.fault.Spec.Cover(s.index).Merge(b.fault.Spec.Cover(o.index))
				for _, f := range both {
					if !slices.Contains(fields, f) {
						fields = append(fields, f)
					}
				}
			}
		}
		return fields
	}
	fields = append(fields, sameRequests(a.fault.Spec.Request, b.fault.Spec.Request)...)
	for _, t := range a.fault.Spec.Toxics {
		for _, u := range b.fault.Spec.Toxics {
			if t.Key() == u.Key() {
				fields = append(fields, "toxic "+t.Key())
			}
		}
	}
	return fields
}

// foreign refuses that h combines with other: another owner's, or one that a command holds
// which is not h's.
func foreign(h, other *held) error {
	switch {
	case other.fault.Spec.Whose() != h.fault.Spec.Whose(), other.group != nil && other.group != h.group:
		return fmt.Errorf("%w: %s is held by %s with %s; see 'netemctl show %s'", fault.ErrConflict,
			h.fault.Spec.TargetName(), other.holder(), other.describe(), other.fault.ID)
	case other.group != h.group:
		return fmt.Errorf("%w: what a command holds combines with no other fault, and %s has %s of %s; see 'netemctl show %s', 'netemctl clear %s' ends it", fault.ErrConflict,
			h.fault.Spec.TargetName(), other.describe(), other.holder(), other.fault.ID, other.fault.ID)
	}
	return nil
}

// describe names h with its time. The caller holds the lock.
func (h *held) describe() string { return fmt.Sprintf("fault %s (%s)", h.fault.ID, h.lasts()) }

// age is how long ago t was, for people.
func age(t time.Time) time.Duration { return time.Since(t).Round(time.Second) }

// notYours refuses what only the owner may do. The caller holds the lock.
func (h *held) notYours() error {
	return fmt.Errorf("%w: %s belongs to %s; see 'netemctl show %s'", fault.ErrConflict, h.describe(), h.fault.Spec.Owner, h.fault.ID)
}
