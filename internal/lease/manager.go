package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// StreamEngine carries out stream faults: the toxics of a target's proxy.
type StreamEngine interface {
	// Set makes toxics all that the target's proxy does to connections, until
	// deadline, which it enforces by itself.
	Set(ctx context.Context, t target.Target, toxics []fault.Toxic, deadline time.Time) error
	// Read returns what is in force.
	Read(ctx context.Context, t target.Target) ([]fault.Toxic, error)
	// Clear takes every toxic away.
	Clear(ctx context.Context, t target.Target) error
}

// Config is what a Manager works with.
type Config struct {
	// Engines by name; a fault that asks for one that is missing is refused with
	// errors.ErrUnsupported.
	Engines map[fault.Engine]Engine
	// Choose says which engine auto takes, and why.
	Choose func(ctx context.Context) (fault.Engine, string, error)
	// Stream may be nil: stream faults are then refused.
	Stream StreamEngine
	// Resolve turns a target's name into places that exist now.
	Resolve func(ctx context.Context, name string) (target.Target, error)
	Log     *slog.Logger
}

// Manager holds all faults. It is safe for concurrent use; what changes the
// kernel is done one at a time.
type Manager struct {
	cfg    Config
	events *broadcaster

	mu       sync.Mutex
	nextID   int
	held     map[string]*held
	requests map[string]string // request id -> fault id
	closed   bool
}

// held is a fault with what is needed to end it.
type held struct {
	fault  fault.Fault
	target target.Target
	places []target.Place
	timer  *time.Timer
	// finger is what the request asked for, to tell a replay from a reuse.
	finger string
}

// New returns a Manager without faults.
func New(cfg Config) *Manager {
	return &Manager{cfg: cfg, events: newBroadcaster(), held: map[string]*held{}, requests: map[string]string{}}
}

// Apply makes a fault, or returns the one that an earlier call with the same
// RequestID made. When it fails, everything is as it was.
func (m *Manager) Apply(ctx context.Context, s fault.Spec) (fault.Fault, error) {
	if err := s.Validate(); err != nil {
		return fault.Fault{}, err
	}
	if s.TTL == 0 {
		s.TTL = fault.DefaultTTL
	}
	if s.Direction == "" {
		s.Direction = fault.To
	}
	t, err := m.cfg.Resolve(ctx, s.Target)
	if err != nil {
		return fault.Fault{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return fault.Fault{}, errors.New("apply: the agent is shutting down")
	}
	if f, ok, err := m.replay(s); ok || err != nil {
		return f, err
	}
	h := &held{target: t, finger: fingerprint(s), fault: fault.Fault{Spec: s, State: fault.Active}}
	if err := m.place(ctx, h); err != nil {
		return fault.Fault{}, err
	}
	if err := m.checkConflict(h); err != nil {
		return fault.Fault{}, err
	}
	h.fault.Applied = time.Now()
	h.fault.Expires = h.fault.Applied.Add(s.TTL)
	m.nextID++
	h.fault.ID = fmt.Sprintf("f%d", m.nextID)
	m.held[h.fault.ID] = h
	if err := m.enforce(ctx, h.slots()); err != nil {
		delete(m.held, h.fault.ID)
		return fault.Fault{}, errors.Join(err, m.restore(ctx, h.slots()))
	}
	m.schedule(h)
	if s.RequestID != "" {
		m.requests[s.RequestID] = h.fault.ID
	}
	m.publish("applied", h.fault)
	return h.fault, nil
}

// replay finds the fault that an earlier request of the same id made.
func (m *Manager) replay(s fault.Spec) (fault.Fault, bool, error) {
	id, ok := m.requests[s.RequestID]
	if !ok || s.RequestID == "" {
		return fault.Fault{}, false, nil
	}
	h, ok := m.held[id]
	if !ok {
		return fault.Fault{}, true, fmt.Errorf("apply: request id %q made fault %s, which has ended", s.RequestID, id)
	}
	if h.finger != fingerprint(s) {
		return fault.Fault{}, true, &qdisc.FieldError{Field: "request_id", Value: s.RequestID, Want: "an id of its own for each different request"}
	}
	return h.fault, true, nil
}

func fingerprint(s fault.Spec) string {
	packet := "-"
	if s.Packet != nil {
		packet = fmt.Sprintf("%+v", *s.Packet)
	}
	s.Packet = nil
	return fmt.Sprintf("%+v %s", s, packet)
}

// place chooses the engine and the places of h.
func (m *Manager) place(ctx context.Context, h *held) error {
	s := h.fault.Spec
	if s.Packet == nil {
		if m.cfg.Stream == nil || !h.target.Proxy.IsValid() {
			return fmt.Errorf("apply: target %s has no proxy for the stream layer: %w", s.Target, errors.ErrUnsupported)
		}
		h.fault.Engine, h.fault.EngineReason = fault.Stream, "toxics act on connections through the proxy"
		h.fault.Placement = []string{"proxy at " + h.target.Proxy.String()}
		return nil
	}
	switch s.Direction {
	case fault.From:
		h.places = []target.Place{h.target.From}
	case fault.Both:
		h.places = []target.Place{h.target.To, h.target.From}
	default:
		h.places = []target.Place{h.target.To}
	}
	if err := m.chooseEngine(ctx, h); err != nil {
		return err
	}
	for _, p := range h.places {
		h.fault.Placement = append(h.fault.Placement, p.String())
	}
	h.fault.Warnings = append(h.fault.Warnings, s.Packet.Warnings()...)
	if h.fault.Engine == fault.Netem && h.places[0].Flow != (target.Flow{}) {
		h.fault.Warnings = append(h.fault.Warnings,
			fmt.Sprintf("netem on the lab's wire impairs every packet on that link, not only those of %s", s.Target))
	}
	return nil
}

func (m *Manager) chooseEngine(ctx context.Context, h *held) error {
	want := h.fault.Spec.Engine
	inUse := m.engineAt(h.places)
	switch {
	case want != "" && want != fault.Auto:
		h.fault.Engine, h.fault.EngineReason = want, "asked for"
	case inUse != "":
		h.fault.Engine, h.fault.EngineReason = inUse, "carries another fault on the same flow"
	default:
		name, reason, err := m.cfg.Choose(ctx)
		if err != nil {
			return err
		}
		h.fault.Engine, h.fault.EngineReason = name, reason
	}
	if inUse != "" && inUse != h.fault.Engine {
		return fmt.Errorf("apply: %w: engine %s carries a fault on this flow already, asked for %s", fault.ErrConflict, inUse, h.fault.Engine)
	}
	if m.cfg.Engines[h.fault.Engine] == nil {
		return fmt.Errorf("apply: engine %s is not available on this machine ('netemctl doctor' says why): %w", h.fault.Engine, errors.ErrUnsupported)
	}
	return nil
}

// engineAt returns the engine in use at one of places, if any.
func (m *Manager) engineAt(places []target.Place) fault.Engine {
	for _, h := range m.held {
		for _, p := range h.places {
			if slices.Contains(places, p) {
				return h.fault.Engine
			}
		}
	}
	return ""
}

// checkConflict refuses what cannot stand beside the faults that are held.
func (m *Manager) checkConflict(h *held) error {
	for _, other := range m.inOrder() {
		if !sharesSlot(h, other) {
			continue
		}
		if other.fault.Spec.Owner != h.fault.Spec.Owner {
			return fmt.Errorf("apply: %w: %s is held by %s with %s; see 'netemctl show %s'", fault.ErrConflict,
				h.fault.Spec.Target, other.fault.Spec.Owner, describe(other.fault), other.fault.ID)
		}
		if fields := sameFields(h.fault.Spec, other.fault.Spec); len(fields) > 0 {
			return fmt.Errorf("apply: %w: %s is set by %s already; 'netemctl change %s' alters it, 'netemctl clear %s' ends it", fault.ErrConflict,
				strings.Join(fields, ", "), describe(other.fault), other.fault.ID, other.fault.ID)
		}
	}
	return nil
}

func sharesSlot(a, b *held) bool {
	for _, s := range a.slots() {
		if slices.Contains(b.slots(), s) {
			return true
		}
	}
	return false
}

// sameFields names what both a and b set.
func sameFields(a, b fault.Spec) []string {
	if a.Packet != nil && b.Packet != nil {
		_, fields := a.Packet.Merge(*b.Packet)
		return fields
	}
	var fields []string
	for _, t := range a.Toxics {
		for _, u := range b.Toxics {
			if t.Key() == u.Key() {
				fields = append(fields, "toxic "+t.Key())
			}
		}
	}
	return fields
}

func describe(f fault.Fault) string {
	return fmt.Sprintf("fault %s (applied %s ago, ends in %s)", f.ID,
		time.Since(f.Applied).Round(time.Second), time.Until(f.Expires).Round(time.Second))
}

// inOrder returns the held faults in the order in which they were applied.
func (m *Manager) inOrder() []*held {
	hs := slices.Collect(maps.Values(m.held))
	slices.SortFunc(hs, func(a, b *held) int { return a.fault.Applied.Compare(b.fault.Applied) })
	return hs
}

// Change alters a packet fault in place, with one replace. The owner stays.
func (m *Manager) Change(ctx context.Context, id, owner string, p qdisc.Patch) (fault.Fault, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.owned(id, owner)
	if err != nil {
		return fault.Fault{}, err
	}
	if h.fault.Spec.Packet == nil {
		return fault.Fault{}, fmt.Errorf("change: fault %s is a stream fault; clear it and apply another", id)
	}
	before := h.fault.Spec.Packet
	after := p.Apply(*before)
	if err := errors.Join(p.Validate(), after.Validate()); err != nil {
		return fault.Fault{}, err
	}
	h.fault.Spec.Packet = &after
	if err := m.checkCombined(h); err != nil {
		h.fault.Spec.Packet = before
		return fault.Fault{}, err
	}
	if err := m.enforce(ctx, h.slots()); err != nil {
		h.fault.Spec.Packet = before
		return fault.Fault{}, errors.Join(err, m.restore(ctx, h.slots()))
	}
	h.fault.Warnings = after.Warnings()
	m.publish("changed", h.fault)
	return h.fault, nil
}

// checkCombined refuses a change that would set what another fault sets.
func (m *Manager) checkCombined(h *held) error {
	for _, other := range m.inOrder() {
		if other == h || !sharesSlot(h, other) {
			continue
		}
		if fields := sameFields(h.fault.Spec, other.fault.Spec); len(fields) > 0 {
			return fmt.Errorf("change: %w: %s is set by %s already", fault.ErrConflict, strings.Join(fields, ", "), describe(other.fault))
		}
	}
	return nil
}

// Renew gives a fault ttl from now; 0 means its own TTL.
func (m *Manager) Renew(ctx context.Context, id, owner string, ttl time.Duration) (fault.Fault, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, err := m.owned(id, owner)
	if err != nil {
		return fault.Fault{}, err
	}
	if ttl == 0 {
		ttl = h.fault.Spec.TTL
	}
	if ttl < fault.MinTTL || ttl > fault.MaxTTL {
		return fault.Fault{}, &qdisc.FieldError{Field: "ttl", Value: ttl.String(), Want: "a time from 1s to 24h, such as 10m"}
	}
	before := h.fault.Expires
	h.fault.Expires = time.Now().Add(ttl)
	if err := m.enforce(ctx, h.slots()); err != nil {
		h.fault.Expires = before
		return fault.Fault{}, errors.Join(err, m.restore(ctx, h.slots()))
	}
	m.schedule(h)
	m.publish("renewed", h.fault)
	return h.fault, nil
}

// owned finds a fault that owner may change.
func (m *Manager) owned(id, owner string) (*held, error) {
	h, ok := m.held[id]
	if !ok {
		return nil, m.unknownFault(id)
	}
	if h.fault.Spec.Owner != owner {
		return nil, fmt.Errorf("%w: fault %s belongs to %s", fault.ErrConflict, id, h.fault.Spec.Owner)
	}
	return h, nil
}
