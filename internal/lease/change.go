package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// Change alters a packet fault in place, with one replace. The owner stays.
func (m *Manager) Change(ctx context.Context, id, owner string, p qdisc.Patch) (fault.Fault, error) {
	return m.alter(ctx, id, owner, "changed", func(f *fault.Fault) error {
		if f.Spec.Content != nil {
			return refuseChange(*f)
		}
		if f.Spec.Packet == nil {
			return fmt.Errorf("change: fault %s is a stream fault; clear it and apply another", id)
		}
		after := p.Apply(*f.Spec.Packet)
		if err := errors.Join(p.Validate(), after.Validate()); err != nil {
			return err
		}
		f.Spec.Packet = &after
		return nil
	})
}

// Renew gives a fault ttl from now; 0 means its own TTL.
func (m *Manager) Renew(ctx context.Context, id, owner string, ttl time.Duration) (fault.Fault, error) {
	return m.alter(ctx, id, owner, "renewed", func(f *fault.Fault) error {
		if ttl == 0 {
			ttl = f.Spec.TTL
		}
		if err := fault.ValidateTTL(ttl); err != nil {
			return err
		}
		f.Expires = time.Now().Add(ttl)
		return nil
	})
}

// alter changes a fault that owner holds and puts it into force; when that fails,
// the fault is as before.
func (m *Manager) alter(ctx context.Context, id, owner, event string, change func(*fault.Fault) error) (fault.Fault, error) {
	h, leave, err := m.enterFault(ctx, id)
	if err != nil {
		return fault.Fault{}, err
	}
	defer leave()
	if h.fault.Spec.Owner != owner {
		return fault.Fault{}, fmt.Errorf("%w: fault %s belongs to %s", fault.ErrConflict, id, h.fault.Spec.Owner)
	}
	before, after := h.fault, h.fault
	if err := change(&after); err != nil {
		return fault.Fault{}, err
	}
	if before.Spec.Packet != after.Spec.Packet && len(after.Offloads) == 0 {
		err := m.offloadRead(ctx, h, &after)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // what is gone is said below
			return fault.Fault{}, err
		}
	}
	if err := m.swap(h, after); err != nil {
		return fault.Fault{}, err
	}
	if err := m.enforce(ctx, h); err != nil {
		m.put(h, before)
		undone := m.restore(ctx, h)
		if errors.Is(err, fs.ErrNotExist) { // nothing to go back to, either
			return fault.Fault{}, fmt.Errorf("fault %s is lost: what it was placed at is gone; 'netemctl clear %s' ends it: %w", id, id, err)
		}
		return fault.Fault{}, errors.Join(err, undone)
	}
	if before.Spec.Packet != after.Spec.Packet {
		m.rebase(ctx, h)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.fault.Warnings = h.warnings()
	m.schedule(h)
	m.publish(event, h.fault)
	return h.fault, nil
}

// enterFault finds a fault and waits for its lane.
func (m *Manager) enterFault(ctx context.Context, id string) (*held, func(), error) {
	m.mu.Lock()
	h, ok := m.held[id]
	err := m.unknownFault(id)
	var lanes []string
	if ok {
		lanes = h.lanes()
	}
	m.mu.Unlock()
	if !ok {
		return nil, nil, err
	}
	leave, err := m.lanes.enter(ctx, lanes)
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[id] != h { // it ended while we waited
		leave()
		return nil, nil, m.unknownFault(id)
	}
	return h, leave, nil
}

// swap gives h its new face, unless that would set what another fault sets.
func (m *Manager) swap(h *held, after fault.Fault) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, other := range m.order {
		if other == h || !sharesSlot(h, other) {
			continue
		}
		if fields := sameFields(after.Spec, other.fault.Spec); len(fields) > 0 {
			return fmt.Errorf("change: %w: %s is set by %s already", fault.ErrConflict, strings.Join(fields, ", "), describe(other.fault))
		}
	}
	h.fault = after
	return nil
}

func (m *Manager) put(h *held, f fault.Fault) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.fault = f
}
