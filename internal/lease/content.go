package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// contentReason is why a rule is where it is.
const contentReason = "only the ebpf engine acts on chosen packets"

// chooseContentEngine takes the one engine that can. Which engine carries impairments of
// the same packets does not matter: a rule stands beside them.
func (m *Manager) chooseContentEngine(h *held) error {
	if _, ok := able[ContentEngine](m.cfg.Engines[fault.EBPF]); !ok {
		return fmt.Errorf("apply: %s, which is not available on this machine ('netemctl doctor' says why): %w", contentReason, errors.ErrUnsupported)
	}
	h.fault.Engine, h.fault.EngineReason = fault.EBPF, contentReason
	return nil
}

// chooser is the engine that carries all rules.
func (m *Manager) chooser() ContentEngine {
	e, _ := able[ContentEngine](m.cfg.Engines[fault.EBPF]) // chooseContentEngine has looked
	return e
}

// setContent makes on all that is in force of a rule at its place: one fault or none.
func (m *Manager) setContent(ctx context.Context, s slot, on []fault.Fault) error {
	if len(on) == 0 {
		return m.chooser().ClearContent(ctx, s.place, *s.rule)
	}
	return m.chooser().SetContent(ctx, s.place, *s.rule, firstEnd(on))
}

// readContent is compare for a rule.
func (m *Manager) readContent(ctx context.Context, s slot) (fault.Status, bool, error) {
	return m.chooser().ReadContent(ctx, s.place, *s.rule)
}

// contentWarnings are what the user should know about a rule at h's places.
func (h *held) contentWarnings() []string {
	var w []string
	r, sel := h.fault.Spec.Content, h.fault.Spec.Selector
	if r.Count > 0 && !r.PerConnection && len(h.slots) > 1 {
		w = append(w, fmt.Sprintf("each direction counts by itself, up to %d", r.Count))
	}
	if r.Count > 0 && sel != nil && sel.NeedsLookup() {
		w = append(w, "when a host name comes to stand for other addresses, the count begins anew")
	}
	return w
}

// refuseChange says that what a rule chooses does not change in place.
func refuseChange(f fault.Fault) error {
	return &qdisc.FieldError{
		Field: "change", Value: f.ID,
		Want: fmt.Sprintf("a fault of all packets: '%s' is counted from its beginning and does not change in place; clear it and make another", f.Spec.Content),
	}
}

// How much is kept of rules that have ended, so that nothing that was measured is lost
// with them.
const (
	endedTime    = time.Minute
	endedRecords = 10 * content.MaxRecords
)

// ended is what a rule did that is no longer held.
type ended struct {
	id  string
	aim fault.Spec
	log content.Log
	at  time.Time
}

// AimOf returns what a fault is aimed at and whose it is: Target, Selector, Owner and OwnerKey
// of its Spec. Of those that have ended it knows the ones of which Packets has something to
// tell. The kernel is not asked.
func (m *Manager) AimOf(id string) (aim fault.Spec, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.held[id]; h != nil {
		return aimOf(h.fault.Spec), true
	}
	m.forgetEnded()
	if f, ok := m.record(id); ok {
		return aimOf(f.Spec), true
	}
	if i := slices.IndexFunc(m.ended, func(e ended) bool { return e.id == id }); i >= 0 {
		return m.ended[i].aim, true
	}
	return fault.Spec{}, false
}

func aimOf(s fault.Spec) fault.Spec {
	return fault.Spec{Target: s.Target, Outage: s.Outage, Selector: s.Selector, Owner: s.Owner, OwnerKey: s.OwnerKey}
}

// Packets returns what the rule of a fault did, and whether the fault is still held. For
// a minute it also knows those that have ended. The error is a *qdisc.FieldError for a
// fault without a rule.
func (m *Manager) Packets(ctx context.Context, id string) (log content.Log, live bool, err error) {
	m.mu.Lock()
	h := m.held[id]
	if h == nil {
		defer m.mu.Unlock()
		m.forgetEnded()
		if i := slices.IndexFunc(m.ended, func(e ended) bool { return e.id == id }); i >= 0 {
			return m.ended[i].log, false, nil
		}
		if m.hasEnded(id) {
			return log, false, fmt.Errorf("packets: fault %s has ended, and what it did is forgotten: %w", id, ErrUnknownFault)
		}
		return log, false, m.unknownFault(id)
	}
	rule := h.fault.Spec.Content
	m.mu.Unlock()
	if rule == nil {
		return log, false, &qdisc.FieldError{Field: "packets", Value: id, Want: "a fault of 'drop' or 'hold': others keep no record of single packets"}
	}
	log, err = m.contentLog(ctx, h)
	return log, true, err
}

// contentLog adds up what h's rule did at its places, and at those that it left.
func (m *Manager) contentLog(ctx context.Context, h *held) (content.Log, error) {
	m.mu.Lock()
	slots := slices.Clone(h.slots)
	logs := []content.Log{h.left}
	m.mu.Unlock()
	var errs []error
	for _, s := range slots {
		log, err := m.chooser().ContentLog(ctx, s.place, *s.rule)
		if err != nil {
			errs = append(errs, fmt.Errorf("packets: %w", err))
			continue
		}
		logs = append(logs, log)
	}
	return sum(logs), errors.Join(errs...)
}

// sum puts logs together, the records by time. Where there are too many the oldest go.
func sum(logs []content.Log) content.Log {
	var all content.Log
	with := 0
	for _, l := range logs {
		all.Chosen += l.Chosen
		all.Missed += l.Missed
		all.Skipped += l.Skipped
		all.Forgotten += l.Forgotten
		all.Records = append(all.Records, l.Records...)
		if len(l.Records) > 0 {
			with++
		}
	}
	if with > 1 {
		slices.SortStableFunc(all.Records, content.Record.Compare)
	}
	if n := len(all.Records) - content.MaxRecords; n > 0 {
		all.Records = all.Records[n:]
	}
	return all
}

// keepLog remembers what a rule did that was just taken out of force.
func (m *Manager) keepLog(ctx context.Context, h *held) {
	if h.fault.Spec.Content == nil {
		return
	}
	ctx, cancel := undoing(ctx)
	defer cancel()
	log, err := m.contentLog(ctx, h)
	if err != nil {
		m.cfg.Log.Warn("what a fault did could not be kept", "fault", h.fault.ID, "err", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = slices.DeleteFunc(m.ended, func(e ended) bool { return e.id == h.fault.ID })
	m.ended = append(m.ended, ended{h.fault.ID, aimOf(h.fault.Spec), log, time.Now()})
	m.forgetEnded()
	time.AfterFunc(endedTime, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.forgetEnded()
	})
}

// forgetEnded forgets what is old or too much. The caller holds the lock.
func (m *Manager) forgetEnded() {
	records, first := 0, len(m.ended)
	for first > 0 {
		e := m.ended[first-1]
		records += len(e.log.Records)
		if time.Since(e.at) >= endedTime || records > endedRecords {
			break
		}
		first--
	}
	m.ended = slices.Delete(m.ended, 0, first)
}

// keepLeft remembers what h's rule did at places that it has left.
func (m *Manager) keepLeft(ctx context.Context, h *held, slots []slot) {
	logs := []content.Log{h.left}
	for _, s := range slots {
		if s.rule == nil {
			continue
		}
		log, err := m.chooser().ContentLog(ctx, s.place, *s.rule)
		if err != nil {
			m.cfg.Log.Warn("what a fault did could not be kept", "fault", h.fault.ID, "place", s.place.String(), "err", err)
			continue
		}
		logs = append(logs, log)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.left = sum(logs)
}

// sameRule names the rule that a and b share.
func sameRule(a, b fault.Spec) []string {
	if a.Content != nil && b.Content != nil && a.Content.Key() == b.Content.Key() {
		return []string{a.Content.String()}
	}
	return nil
}

// ruleSlot makes s the slot of a rule.
func ruleSlot(s slot, r *content.Rule) slot {
	s.key += " " + r.Key()
	s.rule = r
	return s
}

// alone reports whether s stands beside whatever else is at its packets.
func (s slot) alone() bool { return s.proxy != "" || s.service != "" || s.rule != nil }

// slotsFor are those of a fault on packets at places.
func slotsFor(spec fault.Spec, places []target.Place) []slot {
	slots := slotsOf(places)
	if spec.Content != nil {
		for i, s := range slots {
			slots[i] = ruleSlot(s, spec.Content)
		}
	}
	return slots
}
