package lease

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"netemd/internal/fault"
)

// lookTime bounds one look at one fault: a hung proxy must not hold up the others.
const lookTime = time.Second

// Get returns one fault as the kernel has it now.
func (m *Manager) Get(ctx context.Context, id string) (fault.Fault, error) {
	m.look(ctx, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.held[id]
	if !ok {
		return fault.Fault{}, m.unknownFault(id)
	}
	return h.fault, nil
}

// List returns all faults, oldest first, as the kernel has them now.
func (m *Manager) List(ctx context.Context) []fault.Fault {
	m.lookAtAll(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	faults := []fault.Fault{}
	for _, h := range m.inOrder() {
		faults = append(faults, h.fault)
	}
	return faults
}

// every calls f again and again, until ctx ends.
func every(ctx context.Context, interval time.Duration, f func(context.Context)) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f(ctx)
		}
	}
}

// lookAtAll compares what is held with the kernel.
func (m *Manager) lookAtAll(ctx context.Context) {
	m.mu.Lock()
	var ids []string
	for _, h := range m.inOrder() {
		ids = append(ids, h.fault.ID)
	}
	m.mu.Unlock()
	for _, id := range ids {
		m.look(ctx, id)
	}
}

// look compares one fault with what is in force, and tells the watchers when its
// state changed. Where the kernel cannot be asked, what was seen last stands.
func (m *Manager) look(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	h, leave, err := m.enterFault(ctx, id)
	if err != nil {
		return
	}
	defer leave()
	now, err := m.count(ctx, h)
	if err != nil {
		m.cfg.Log.Warn("fault could not be read back", "fault", id, "err", err)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := h.fault.State
	h.fault.State, h.fault.Counters, h.fault.CountersMissing, h.fault.Queued = now.state, now.counters, now.missing, now.queued
	switch now.state {
	case before:
	case fault.Active:
		m.publish("repaired", h, nil)
	default:
		m.publish(string(now.state), h, nil)
	}
	m.mend(h)
}

// sight is what a look at a fault found.
type sight struct {
	state    fault.State
	counters fault.Counters
	missing  []string
	queued   uint64
}

// count reads every slot of h. The error says that the kernel could not be asked;
// the sight is then the one before. The caller holds the lane.
func (m *Manager) count(ctx context.Context, h *held) (sight, error) {
	old := sight{h.fault.State, h.fault.Counters, h.fault.CountersMissing, h.fault.Queued}
	now := sight{state: fault.Active}
	for _, s := range h.slots {
		same, err := m.compare(ctx, h, s, &now)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return sight{fault.Lost, old.counters, old.missing, 0}, nil
		case err != nil:
			return old, err
		case !same:
			now.state = fault.Drifted
		}
	}
	now.counters = h.carried.Add(now.counters.Since(h.base))
	return now, nil
}

// rebase lets h count from now on. The caller holds the lane. A rule counts from where it
// was put into force: what it chose before anybody could look is not to be forgotten.
func (m *Manager) rebase(ctx context.Context, h *held) {
	var now sight
	if h.fault.Spec.Content != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		h.base, h.carried = fault.Counters{}, fault.Counters{}
		return
	}
	for _, s := range h.slots {
		if _, err := m.compare(ctx, h, s, &now); err != nil {
			m.cfg.Log.Warn("counters could not be read", "fault", h.fault.ID, "err", err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.base, h.carried, h.fault.Counters = now.counters, fault.Counters{}, fault.Counters{}
}

// compare reads one slot, adds its counters to now, and reports whether it is as it
// should be.
func (m *Manager) compare(ctx context.Context, h *held, s slot, now *sight) (bool, error) {
	on := m.at(s)
	if s.proxy != "" {
		got, err := m.cfg.Stream.Read(ctx, h.target)
		return slices.Equal(got, fault.NormalizeToxics(toxicsOf(on))), err
	}
	var st fault.Status
	var inForce bool
	var err error
	if s.rule != nil {
		st, inForce, err = m.readContent(ctx, s)
	} else {
		st, err = m.cfg.Engines[h.fault.Engine].Read(ctx, s.place)
	}
	if err != nil {
		return false, err
	}
	now.counters = now.counters.Add(st.Counters)
	now.queued += st.Queued
	for _, name := range st.CountersMissing {
		if !slices.Contains(now.missing, name) {
			now.missing = append(now.missing, name)
		}
	}
	if s.rule != nil {
		return inForce, nil
	}
	return len(union(on).Differences(st.Netem)) == 0, nil
}
