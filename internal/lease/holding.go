package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Holding is a packet fault with what is in force at its places, for those who verify
// it.
type Holding struct {
	Fault  fault.Fault
	Target target.Target
	Places []Held
}

// Held is one place, and everything that all faults there amount to.
type Held struct {
	Place target.Place
	Netem qdisc.Netem
	// Status reads what the kernel holds there.
	Status func(context.Context) (fault.Status, error)
}

// Held returns a packet fault as the kernel has it now. A stream fault's error is
// errors.ErrUnsupported.
func (m *Manager) Held(ctx context.Context, id string) (Holding, error) {
	m.look(ctx, id)
	m.mu.Lock()
	h, ok := m.held[id]
	if !ok {
		defer m.mu.Unlock()
		return Holding{}, m.unknownFault(id)
	}
	if h.fault.Spec.Content != nil {
		defer m.mu.Unlock()
		return Holding{}, fmt.Errorf("fault %s chooses its packets and leaves the others as they are, which no share of them shows; 'netemctl packets %s' says what it did: %w", id, id, errors.ErrUnsupported)
	}
	holding := Holding{Fault: h.fault, Target: h.target}
	places := h.places()
	slots := h.slots
	m.mu.Unlock()
	if len(places) == 0 && holding.Fault.Spec.OnPackets() {
		return Holding{}, fmt.Errorf("fault %s is lost (%s): %w", id, holding.Fault.Reason, fs.ErrNotExist)
	}
	if len(places) == 0 {
		return Holding{}, fmt.Errorf("fault %s has no packets that could be looked at: %w", id, errors.ErrUnsupported)
	}
	engine := m.cfg.Engines[holding.Fault.Engine]
	for _, s := range slots {
		holding.Places = append(holding.Places, Held{
			Place: s.place, Netem: union(m.at(s)),
			Status: func(ctx context.Context) (fault.Status, error) { return engine.Read(ctx, s.place) },
		})
	}
	return holding, nil
}
