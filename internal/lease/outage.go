package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// ProcessEngine carries out outages of services. Its methods are idempotent; calls about one
// fault come one after the other.
type ProcessEngine interface {
	// Set begins f's outages, or goes on with them until f.Expires; with resume those that were
	// due before are left out. told is called for what happens, in order, and calls nothing of
	// the engine's.
	Set(ctx context.Context, f fault.Fault, resume bool, told func(kind string, r fault.OutageRun)) error
	// Read is nil while the outages go on as they should; fs.ErrNotExist says which service
	// is not there any more.
	Read(ctx context.Context, f fault.Fault) error
	// Clear has all services of a fault back when it returns.
	Clear(ctx context.Context, id string) error
}

// outageMargin is what an outage that nobody gave a time to live may take beyond its
// timetable: a service has to become ready after it.
const outageMargin = time.Minute

// keptRecords is of how many outages that have ended the record is kept.
const keptRecords = 64

func serviceLane(name string) string { return "1 service " + name }

// serviceSlots are those of an outage.
func serviceSlots(o *fault.Outage) []slot {
	var slots []slot
	for i, name := range o.Services {
		slots = append(slots, slot{key: "service " + name, service: name, index: i})
	}
	return slots
}

func (m *Manager) planOutage(h *held) error {
	if m.cfg.Process == nil {
		return fmt.Errorf("apply: this agent keeps no services: %w", errors.ErrUnsupported)
	}
	h.fault.Engine, h.fault.EngineReason = fault.Process, "the services' keepers end and start their processes"
	h.fault.Placement = h.placement()
	h.fault.Warnings = h.warnings()
	return nil
}

// outageTTL is the time to live of an outage that asked for none: that of any fault, unless
// its timetable takes longer.
func (m *Manager) outageTTL(o *fault.Outage) (time.Duration, error) {
	length, ends := o.Length()
	if !ends || length+outageMargin <= m.cfg.Limits.TTL {
		return m.cfg.Limits.TTL, nil
	}
	if length > m.cfg.Limits.MaxTTL {
		return 0, &qdisc.FieldError{Field: "ttl", Want: fmt.Sprintf("one of at most %s: the outages take %s, and a fault may not last that long here",
			qdisc.FormatDuration(m.cfg.Limits.MaxTTL), qdisc.FormatDuration(length))}
	}
	return min(length+outageMargin, m.cfg.Limits.MaxTTL), nil
}

// setOutage puts what is on a service's slot into force. A fault of several services is one
// thing to the engine: its first slot stands for all.
func (m *Manager) setOutage(ctx context.Context, h *held, s slot, on []fault.Fault) error {
	switch {
	case s.index > 0:
		return nil
	case len(on) == 0:
		return m.cfg.Process.Clear(ctx, h.fault.ID)
	}
	m.mu.Lock()
	f, resume := h.fault, h.resumed
	m.mu.Unlock()
	return m.cfg.Process.Set(ctx, f, resume, func(kind string, r fault.OutageRun) { m.outageTold(h, kind, r) })
}

// outageTold takes over what happened to a service of h, and tells the watchers. What happens
// before the fault is told as applied waits for that.
func (m *Manager) outageTold(h *held, kind string, r fault.OutageRun) {
	m.mu.Lock()
	defer m.mu.Unlock()
	run := fault.OutageRun{}
	if h.run != nil {
		run = *h.run
	}
	strikes := r.Strikes
	r.Strikes = run.Strikes
	for _, s := range strikes {
		r.Record(s)
	}
	h.run = &r
	h.fault.Outages = h.run
	if kind == "over" {
		m.endSoon(h)
		return
	}
	r.Strikes = slices.Clone(r.Strikes)
	if !h.whole {
		h.early = append(h.early, outageEvent{kind, r, strikes})
		return
	}
	m.publishOutage(h, outageEvent{kind, r, strikes})
}

// outageEvent is something that happened, with the strike that it is about.
type outageEvent struct {
	kind    string
	run     fault.OutageRun
	strikes []fault.StrikeRecord
}

// publishOutage tells the watchers. The caller holds the lock.
func (m *Manager) publishOutage(h *held, e outageEvent) {
	whole := h.fault.Outages
	e.run.Strikes = e.strikes
	h.fault.Outages = &e.run
	m.publish(e.kind, h, nil)
	h.fault.Outages = whole
}

// startOutage tells what happened before h was told as applied. The caller holds the lock.
func (m *Manager) startOutage(h *held) {
	for _, e := range h.early {
		m.publishOutage(h, e)
	}
	h.early = nil
	if h.run != nil && h.run.Over {
		m.endSoon(h)
	}
}

// endSoon ends an outage of which nothing more is to come, unless somebody holds it. The
// caller holds the lock.
func (m *Manager) endSoon(h *held) {
	if !h.whole || h.group != nil || h.ending || m.closed || m.held[h.fault.ID] != h {
		return
	}
	h.fault.Expires = time.Now()
	if h.changing != nil { // a change that fails must not bring the old end back
		h.changing.Expires = h.fault.Expires
	}
	m.schedule(h)
}

// keepRecord keeps what the outages of h did for who asks after its end. The caller holds the
// lock.
func (m *Manager) keepRecord(h *held) {
	if h.fault.Spec.Outage == nil {
		return
	}
	m.records = append(m.records, h.fault)
	m.records = slices.Clone(m.records[max(0, len(m.records)-keptRecords):])
}

// record is an outage that has ended. The caller holds the lock.
func (m *Manager) record(id string) (fault.Fault, bool) {
	for _, f := range m.records {
		if f.ID == id {
			return f, true
		}
	}
	return fault.Fault{}, false
}

// Strikes are what outages did to a service, LAB/SERVICE, as far as it is kept, those of faults
// that have ended first, and of those only strikes whose end is known.
func (m *Manager) Strikes(service string) (all []fault.StrikeRecord) {
	m.mu.Lock()
	defer m.mu.Unlock()
	add := func(r *fault.OutageRun, ended bool) {
		if r == nil {
			return
		}
		for _, s := range r.Strikes {
			if s.Service == service && (!ended || !s.Ready.IsZero()) {
				all = append(all, s)
			}
		}
	}
	for _, f := range m.records {
		add(f.Outages, true)
	}
	for _, h := range m.inOrder() {
		add(h.run, false)
	}
	return all
}

// sameServices names what a and b make fail.
func sameServices(a, b fault.Spec) []string {
	if a.Outage == nil || b.Outage == nil {
		return nil
	}
	var both []string
	for _, name := range a.Outage.Services {
		if slices.Contains(b.Outage.Services, name) {
			both = append(both, "service "+name)
		}
	}
	return both
}

// outagePlacement says what h makes fail.
func (h *held) outagePlacement() []string {
	return []string{"service " + strings.Join(h.fault.Spec.Outage.Services, ", ")}
}

// showRun has the fault show what its outages did, whatever was put in its place.
func (h *held) showRun() {
	if h.run != nil {
		h.fault.Outages = h.run
	}
}
