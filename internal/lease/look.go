package lease

import (
	"context"
	"errors"
	"io/fs"
	"slices"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// Get returns one fault as the kernel has it now.
func (m *Manager) Get(ctx context.Context, id string) (fault.Fault, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.held[id]
	if !ok {
		return fault.Fault{}, m.unknownFault(id)
	}
	m.look(ctx, h)
	return h.fault, nil
}

// List returns all faults, oldest first, as the kernel has them now.
func (m *Manager) List(ctx context.Context) []fault.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	faults := []fault.Fault{}
	for _, h := range m.inOrder() {
		m.look(ctx, h)
		faults = append(faults, h.fault)
	}
	return faults
}

// look compares what is held with what is in force, and tells the watchers when
// that changed.
func (m *Manager) look(ctx context.Context, h *held) {
	before := h.fault.State
	counters, state := m.count(ctx, h)
	h.fault.State = state
	if state != fault.Lost {
		h.fault.Counters = counters
	}
	if state != before && state != fault.Active {
		m.publish(string(state), h.fault)
	}
}

// count reads every slot of h: the sum of the counters, and Active, Drifted or
// Lost.
func (m *Manager) count(ctx context.Context, h *held) (fault.Counters, fault.State) {
	var sum fault.Counters
	for _, s := range h.slots() {
		on := m.at(s)
		if s.proxy != "" {
			got, err := m.cfg.Stream.Read(ctx, h.target)
			if err != nil {
				return sum, fault.Lost
			}
			var want []fault.Toxic
			for _, o := range on {
				want = append(want, o.fault.Spec.Toxics...)
			}
			if !slices.Equal(got, fault.NormalizeToxics(want)) {
				return sum, fault.Drifted
			}
			continue
		}
		st, err := m.cfg.Engines[h.fault.Engine].Read(ctx, s.place)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				m.cfg.Log.Warn("fault could not be read back", "fault", h.fault.ID, "err", err)
			}
			return sum, fault.Lost
		}
		sum = sum.Add(st.Counters)
		var want qdisc.Netem
		for _, o := range on {
			want, _ = want.Merge(*o.fault.Spec.Packet)
		}
		if len(want.Differences(st.Netem)) > 0 {
			return sum, fault.Drifted
		}
	}
	return sum, fault.Active
}
