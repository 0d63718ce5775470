package lease

import (
	"context"
	"fmt"
	"slices"
	"time"

	"netemd/internal/fault"
)

// A fault that a client holds is its command's alone: on its packets nobody else's combines
// with it, not even another one of the same user, who would otherwise measure two impairments
// and be told of one. Those that the command makes itself say so by Spec.Within. A client that
// holds several names one of them by Spec.Beside: each ends by itself then, and those that are
// left still combine.

// enterGroup takes h to the held fault that Spec.Within or Spec.Beside names, or notes why
// not. The caller holds the lock.
func (m *Manager) enterGroup(h *held) {
	id, asked := h.fault.Spec.Within, "within"
	if id == "" {
		id, asked = h.fault.Spec.Beside, "beside"
	}
	if id == "" {
		return
	}
	switch outer := m.held[id]; {
	case outer == nil && m.hasEnded(id):
		h.notes.within = fmt.Sprintf("fault %s, %s which it was asked for, has ended: it stands by itself", id, asked)
	case outer == nil:
		h.notes.within = fmt.Sprintf("fault %q, %s which it was asked for, is not known to this agent: it stands by itself", id, asked)
	case outer.fault.Spec.Whose() != h.fault.Spec.Whose():
		h.notes.within = fmt.Sprintf("fault %s, %s which it was asked for, belongs to %s: it stands by itself", id, asked, outer.fault.Spec.Owner)
	case outer.hold == nil || outer.hold.over:
		h.notes.within = fmt.Sprintf("fault %s, %s which it was asked for, is held by no command: it stands by itself", id, asked)
	case outer.ending || !time.Now().Before(outer.fault.Expires):
		h.notes.within = fmt.Sprintf("fault %s, %s which it was asked for, is ending: it stands by itself", id, asked)
	default:
		h.notes.within, h.group = "", outer.group
		if h.fault.Spec.Within != "" {
			h.within = outer
		}
	}
	h.fault.Warnings = h.warnings()
}

// endWithin ends what was made within h, where h has ended. The caller is in no lane: it
// enters those of each.
func (m *Manager) endWithin(h *held) {
	m.mu.Lock()
	var inner []*held
	if m.held[h.fault.ID] != h {
		for _, o := range m.order {
			if o.within == h {
				inner = append(inner, o)
			}
		}
	}
	m.mu.Unlock()
	for _, o := range slices.Backward(inner) {
		m.endInner(o)
	}
}

// endInner ends one of them, and what was made within that.
func (m *Manager) endInner(h *held) {
	ctx := context.Background()
	_, leave, err := m.enterFault(ctx, h.fault.ID)
	if err != nil {
		return // it has ended
	}
	defer m.endWithin(h)
	defer leave()
	if _, err := m.end(ctx, h, fault.Cleared, nil); err != nil {
		m.endLater(h, err)
	}
}

// holder says who has h, for people: "uid 0 (root), pid 4711 (netemctl)". The caller holds the
// lock.
func (h *held) holder() string {
	of := h
	if h.group != nil {
		of = h.group
	}
	who := of.fault.Spec.Owner
	if of.hold != nil {
		who = of.hold.holder
	}
	if p := of.fault.Spec.Process; p != "" && of.hold != nil {
		who += ", " + p + ","
	}
	return who
}

// lasts says since when h stands, and until when. The caller holds the lock.
func (h *held) lasts() string {
	switch {
	case h.group == h:
		return fmt.Sprintf("applied %s ago, held while its command runs", age(h.fault.Applied))
	case h.within != nil:
		return fmt.Sprintf("applied %s ago, ends with fault %s, which is held while its command runs", age(h.fault.Applied), h.within.fault.ID)
	}
	return fmt.Sprintf("applied %s ago, ends in %s", age(h.fault.Applied), left(h))
}

// left is the time that h has, in whole seconds and never less than there is.
func left(h *held) time.Duration {
	d := time.Until(h.fault.Expires)
	return max(time.Second, (d + time.Second - 1).Truncate(time.Second))
}
