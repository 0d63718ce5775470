package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// lookTime bounds one look at one fault: a hung proxy must not hold up the others.
const lookTime = time.Second

// Get returns one fault as the kernel has it now, and of the last outages of services also those
// that have ended.
func (m *Manager) Get(ctx context.Context, id string) (fault.Fault, error) {
	m.look(ctx, id)
	m.mu.Lock()
	defer m.mu.Unlock()
	h, ok := m.held[id]
	if f, ended := m.record(id); !ok && ended {
		return f, nil
	}
	if !ok {
		return fault.Fault{}, m.unknownFault(id)
	}
	return h.fault, nil
}

// List returns all faults, oldest first, as the kernel has them now.
func (m *Manager) List(ctx context.Context) []fault.Fault {
	m.lookAtAll(ctx)
	return m.Known()
}

// Known returns all faults, oldest first, as they were when the kernel was last looked at.
func (m *Manager) Known() []fault.Fault {
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
	if now.gone || h.stuck {
		m.withdraw(ctx, h)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	before := h.fault.State
	h.fault.State, h.fault.CountersMissing, h.fault.Queued = now.state, now.missing, now.queued
	h.counted(now.counters)
	if now.state != before || h.fault.Reason == "" { // an engine may say it once only
		h.fault.Reason = now.reason
	}
	if now.state == fault.Active {
		h.inForce = time.Now()
	}
	switch now.state {
	case before:
	case fault.Active:
		m.publish(h.mending.cameBack(), h, nil)
	default:
		m.publish(string(now.state), h, nil)
	}
	m.mend(h)
}

// sight is what a look at a fault found.
type sight struct {
	state    fault.State
	reason   string // of one that is not active
	counters fault.Counters
	missing  []string
	queued   uint64
	gone     bool // what it was aimed at is not there, though its places may be
}

// count reads every slot of h. The error says that the kernel could not be asked;
// the sight is then the one before. The caller holds the lane.
func (m *Manager) count(ctx context.Context, h *held) (sight, error) {
	old := sight{state: h.fault.State, reason: h.fault.Reason, counters: h.fault.Counters, missing: h.fault.CountersMissing, queued: h.fault.Queued}
	if h.nowhere() {
		return old, nil
	}
	lost := sight{state: fault.Lost, counters: old.counters, missing: old.missing}
	if h.gone { // for good, unless it is reattached
		lost.reason = h.fault.Reason
		return lost, nil
	}
	if err := m.cfg.Standing(h.target); errors.Is(err, fs.ErrNotExist) {
		lost.reason, lost.gone = err.Error(), true
		var last sight
		for _, s := range h.slots { // it is taken off next, and counts no more
			if _, err := m.compare(ctx, h, s, &last); err != nil {
				return lost, nil
			}
		}
		lost.counters = h.carried.Add(last.counters.Since(h.base))
		return lost, nil
	}
	now := sight{state: fault.Active}
	for _, s := range h.slots {
		same, err := m.compare(ctx, h, s, &now)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			lost.reason = s.gone(err)
			return lost, nil
		case err != nil:
			return old, err
		case !same:
			now.state = fault.Drifted
		}
	}
	now.counters = h.carried.Add(now.counters.Since(h.base))
	if h.clock != nil && h.clock.failed != "" { // what is in force is of another time
		now.state, now.reason = fault.Lost, h.clock.failed
	}
	return now, nil
}

// withdraw takes h off its places, since who has them next is not meant. What does not succeed
// is tried at the next look. The caller holds the lane.
func (m *Manager) withdraw(ctx context.Context, h *held) {
	m.mu.Lock()
	h.gone = true
	m.mu.Unlock()
	err := m.restore(ctx, h)
	if err != nil {
		m.cfg.Log.Warn("a fault could not be taken off what its target left", "fault", h.fault.ID, "err", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.stuck = err != nil
}

// gone says that what a slot was at is no more.
func (s slot) gone(err error) string {
	if s.service != "" {
		return err.Error()
	}
	what := "the proxy of target " + s.proxy
	if s.requests {
		what = "the http-proxy of target " + s.proxy
	}
	if s.proxy == "" {
		what = "the device " + s.place.Device
		if s.place.Namespace != "" {
			what += " in netns " + s.place.Namespace
		}
	}
	return fmt.Sprintf("%s is gone: %s", what, err)
}

// counted takes over what h has counted since it began or was changed. The caller holds the
// lock.
func (h *held) counted(c fault.Counters) {
	h.fault.Counters, h.fault.Total = c, h.past.Add(c)
}

// rebaseChanged is rebase of a fault that was changed: what it had counted before stays in its
// total. The caller holds the lane.
func (m *Manager) rebaseChanged(ctx context.Context, h *held) {
	base, carried, seen := h.base, h.carried, h.fault.Counters
	m.rebase(ctx, h)
	m.mu.Lock()
	defer m.mu.Unlock()
	if until := carried.Add(h.base.Since(base)); until.Seen >= seen.Seen && h.base.Seen > 0 {
		seen = until // with what came since the last look
	}
	h.past = h.past.Add(seen)
	h.fault.Total = h.past
}

// rebase lets h count from now on. The caller holds the lane. A rule, and a fault of
// requests, counts from where it was put into force: what it chose before anybody could look is not to be forgotten.
func (m *Manager) rebase(ctx context.Context, h *held) {
	var now sight
	if h.fault.Spec.Content != nil || h.fault.Spec.Request != nil {
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
	if s.service != "" {
		if s.index > 0 { // the first stands for all
			return true, nil
		}
		return true, m.cfg.Process.Read(ctx, h.fault)
	}
	on := m.atWith(s, h)
	if s.requests {
		return m.compareRequests(ctx, h, on, now)
	}
	if s.proxy != "" {
		got, err := m.cfg.Stream.Read(ctx, h.target)
		same := slices.Equal(got, fault.NormalizeToxics(toxicsOf(on)))
		if !same {
			now.reason = "the proxy has other toxics"
		}
		return same, err
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
	var want qdisc.Netem
	var different []string
	if s.rule == nil {
		want = union(on)
		different = want.Differences(st.Netem)
		inForce = len(different) == 0
	}
	if inForce {
		return true, nil
	}
	now.reason = st.Reason
	switch {
	case now.reason != "":
	case s.rule != nil || st.Netem.IsZero():
		now.reason = fmt.Sprintf("nothing is in force at the %s any more", s.place)
	default:
		now.reason = fmt.Sprintf("%s is in force at the %s instead of %s (%s)", st.Netem, s.place, want, strings.Join(different, ", "))
	}
	return false, nil
}
