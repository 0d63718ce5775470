package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// party is who asks for a change: an owner, by its Whose, with the token of a hold or 0 for whoever has
// it; or the hold itself.
type party struct {
	owner string
	token uint64
	hold  *Hold
}

// may reports whether p may change h. The caller holds the lock.
func (p party) may(h *held) error {
	if p.hold == nil && h.fault.Spec.Whose() != p.owner {
		return h.notYours()
	}
	return h.checkToken(p.token)
}

// Change alters a packet fault in place, with one replace, for its owner, by his Whose, who
// stays that. With a token only that hold's fault is changed; 0 is whoever holds it.
func (m *Manager) Change(ctx context.Context, id, owner string, token uint64, p qdisc.Patch) (fault.Fault, error) {
	return m.alter(ctx, id, party{owner: owner, token: token}, "changed", func(f *fault.Fault) error {
		if f.Spec.Content != nil {
			return refuseChange(*f)
		}
		if f.Spec.Request != nil {
			return refuseRequestChange(id)
		}
		if f.Spec.Schedule != nil {
			return refuseScheduled(*f)
		}
		if f.Spec.Outage != nil {
			return fmt.Errorf("change: fault %s is an outage of services, which goes by its timetable; clear it and make another", id)
		}
		if f.Spec.Packet == nil {
			return fmt.Errorf("change: fault %s is a stream fault; clear it and apply another", id)
		}
		after := p.Apply(*f.Spec.Packet)
		if err := errors.Join(p.Validate(), after.Validate()); err != nil {
			return err
		}
		if back := f.Spec.PacketFrom; back != nil { // what is changed is changed in both directions
			after := p.Apply(*back)
			if err := after.Validate(); err != nil {
				return fmt.Errorf("from the target: %w", err)
			}
			f.Spec.PacketFrom = &after
		}
		f.Spec.Packet, f.Spec.Profile = &after, ""
		return nil
	})
}

// Renew gives a fault ttl from now, for its owner, by his Whose; 0 means its own TTL.
func (m *Manager) Renew(ctx context.Context, id, owner string, ttl time.Duration) (fault.Fault, error) {
	return m.renew(ctx, id, party{owner: owner}, ttl)
}

func (m *Manager) renew(ctx context.Context, id string, by party, ttl time.Duration) (fault.Fault, error) {
	return m.alter(ctx, id, by, "renewed", func(f *fault.Fault) error {
		if ttl == 0 {
			ttl = f.Spec.TTL
		}
		if err := m.checkTTL(ttl); err != nil {
			return err
		}
		f.Expires = time.Now().Add(ttl)
		return nil
	})
}

// alter changes a fault and puts it into force; when that fails, the fault is as before.
func (m *Manager) alter(ctx context.Context, id string, by party, event string, change func(*fault.Fault) error) (fault.Fault, error) {
	h, leave, err := m.enterFault(ctx, id)
	if err != nil {
		return fault.Fault{}, err
	}
	defer leave()
	m.mu.Lock()
	err = by.may(h)
	if m.closed && err == nil {
		err = errClosing
	}
	before, after := h.fault, h.fault
	if err == nil {
		h.changing = &before
	}
	m.mu.Unlock()
	if err != nil {
		return fault.Fault{}, fmt.Errorf("%s: %w", verbs[event], err)
	}
	defer m.changed(h)
	if h.nowhere() || h.gone {
		return fault.Fault{}, fmt.Errorf("%s: fault %s is lost, %s; 'netemctl clear %s' ends it: %w", verbs[event], id, before.Reason, id, fs.ErrNotExist)
	}
	if err := change(&after); err != nil {
		return fault.Fault{}, err
	}
	failpoint.At("lease.change.begin")
	impaired := before.Spec.Packet != after.Spec.Packet
	if impaired && len(after.Offloads) == 0 {
		err := m.offloadRead(ctx, h, &after)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // what is gone is said below
			return fault.Fault{}, err
		}
	}
	if err := m.swap(h, after); err != nil {
		return fault.Fault{}, err
	}
	if err := m.replace(ctx, h, before, impaired); err != nil {
		return fault.Fault{}, fmt.Errorf("%s: %w", verbs[event], err)
	}
	if impaired {
		m.rebaseChanged(ctx, h)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.kept { // handed over as it was before
		return fault.Fault{}, fmt.Errorf("%s: %w", verbs[event], errClosing)
	}
	h.changing = nil
	h.fault.Warnings = h.warnings()
	m.schedule(h)
	m.publish(event, h, by.hold)
	if impaired { // it may leave room for others now
		m.callNext()
	}
	return h.fault, nil
}

// changed ends an alter of h, which is as it was before unless that was acknowledged: also
// when an engine panicked, and when h was handed over meanwhile.
func (m *Manager) changed(h *held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.changing != nil {
		h.fault, h.changing = *h.changing, nil
		h.showRun()
	}
}

// verbs are what leads to an event.
var verbs = map[string]string{"changed": "change", "renewed": "renew"}

// replace puts h into force instead of before, or leaves before in force. A fault that only
// lasts longer needs no intent: nothing comes that was not there.
func (m *Manager) replace(ctx context.Context, h *held, before fault.Fault, impaired bool) (err error) {
	if impaired {
		if err := m.cfg.Journal.Intend(ctx, h.fault, h.allPlaces()); err != nil {
			m.put(h, before)
			return err
		}
		failpoint.At("lease.change.intended")
	}
	if err = m.enforce(ctx, h, "lease.change.place"); err == nil {
		failpoint.At("lease.change.enforced")
		if err = m.cfg.Journal.Hold(ctx, h.fault); err == nil {
			failpoint.At("lease.change.recorded")
			return nil
		}
	}
	m.put(h, before)
	undone := m.restore(ctx, h)
	m.recordAsIs(ctx, h)
	if errors.Is(err, fs.ErrNotExist) { // nothing to go back to, either
		return fmt.Errorf("fault %s is lost: what it was placed at is gone; 'netemctl clear %s' ends it: %w", before.ID, before.ID, err)
	}
	return errors.Join(err, undone)
}

// enterFault finds a fault and waits for its lanes, of which it may get others meanwhile.
func (m *Manager) enterFault(ctx context.Context, id string) (*held, func(), error) {
	for {
		h, keys, err := m.find(id)
		if err != nil {
			return nil, nil, err
		}
		leave, err := m.lanes.enter(ctx, keys)
		if err != nil {
			return nil, nil, err
		}
		again, now, err := m.find(id)
		if err == nil && again == h && slices.Equal(keys, now) {
			return h, leave, nil
		}
		leave()
		if err != nil { // it ended while we waited
			return nil, nil, err
		}
	}
}

// find returns a fault and its lanes.
func (m *Manager) find(id string) (*held, []string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.held[id]
	if !ok {
		return nil, nil, m.unknownFault(id)
	}
	return h, h.lanes(), nil
}

// swap gives h its new face, unless that would set what another fault sets.
func (m *Manager) swap(h *held, after fault.Fault) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := &held{fault: after, slots: h.slots}
	for _, other := range m.order {
		if other == h || !sharesSlot(h, other) {
			continue
		}
		if fields := sameFields(changed, other); len(fields) > 0 {
			return fmt.Errorf("change: %w: %s is set by %s already, which %s holds; see 'netemctl show %s'", fault.ErrConflict,
				strings.Join(fields, ", "), other.describe(), other.holder(), other.fault.ID)
		}
	}
	h.fault = after
	h.showRun()
	return nil
}

func (m *Manager) put(h *held, f fault.Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.fault = f
	h.showRun()
	m.callNext()
}
