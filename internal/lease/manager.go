package lease

import (
	"context"
	"crypto/rand"
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
	// Read returns what is in force; fs.ErrNotExist when there is no proxy any more.
	Read(ctx context.Context, t target.Target) ([]fault.Toxic, error)
	// Clear takes every toxic away. A proxy that is gone has none.
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
	// LookEvery is how often the kernel is compared with what is held; 0 is only when
	// somebody asks.
	LookEvery time.Duration
	Log       *slog.Logger
}

// Manager holds all faults. It is safe for concurrent use. What changes the kernel
// for one target and layer is done one at a time; a hung proxy does not hold up the
// packet layer, nor one target another.
type Manager struct {
	cfg    Config
	events *broadcaster
	// prefix begins the ids; it is different in each agent's life, so that a client
	// which outlived one does not end a fault of the next.
	prefix  string
	looking sync.WaitGroup
	stop    context.CancelFunc

	// mu guards what follows, and is never held over a call to an engine.
	mu       sync.Mutex
	nextID   int
	held     map[string]*held
	requests map[string]request
	lanes    map[string]chan struct{}
	closed   bool
}

// held is a fault with what is needed to end it. Its fields are written by the
// holder of its lane, under the Manager's lock.
type held struct {
	fault  fault.Fault
	target target.Target
	places []target.Place
	timer  *time.Timer
	// base is what its places had counted when the fault began or was changed.
	base fault.Counters
	// ending faults are no longer part of what is put into force.
	ending bool
	// tries counts how often ending it failed.
	tries int
}

// request is what an Apply with a request id was about.
type request struct {
	id     string // of the fault
	finger string
	ended  time.Time
}

// requestMemory is how long the end of a fault is remembered for replays.
const requestMemory = time.Hour

// New returns a Manager without faults. Close must be called.
func New(cfg Config) *Manager {
	m := &Manager{
		cfg: cfg, events: newBroadcaster(), prefix: newPrefix(),
		held: map[string]*held{}, requests: map[string]request{}, lanes: map[string]chan struct{}{},
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	if cfg.LookEvery > 0 {
		m.looking.Go(func() { m.keepLooking(ctx) })
	}
	return m
}

// newPrefix draws three consonants, of which no word can be made.
func newPrefix() string {
	const letters = "bcdfghjkmnpqrstvwxz"
	b := make([]byte, 3)
	_, _ = rand.Read(b) // it never fails
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b)
}

// enter waits for the lane of a target's layer, and returns what leaves it.
func (m *Manager) enter(ctx context.Context, name string, packet bool) (leave func(), err error) {
	key := "stream " + name
	if packet {
		key = "packet " + name
	}
	m.mu.Lock()
	lane := m.lanes[key]
	if lane == nil {
		lane = make(chan struct{}, 1)
		m.lanes[key] = lane
	}
	m.mu.Unlock()
	select {
	case lane <- struct{}{}:
		return func() { <-lane }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another change of %s: %w", name, context.Cause(ctx))
	}
}

func (h *held) isPacket() bool { return h.fault.Spec.Packet != nil }

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
	if f, ok, err := m.replay(s); ok || err != nil {
		return f, err
	}
	if _, err := m.cfg.Resolve(ctx, s.Target); err != nil { // before it gets a lane
		return fault.Fault{}, err
	}
	leave, err := m.enter(ctx, s.Target, s.Packet != nil)
	if err != nil {
		return fault.Fault{}, fmt.Errorf("apply: %w", err)
	}
	defer leave()
	if f, ok, err := m.replay(s); ok || err != nil { // its twin was before us in the lane
		return f, err
	}
	t, err := m.cfg.Resolve(ctx, s.Target)
	if err != nil {
		return fault.Fault{}, err
	}
	h := &held{target: t, fault: fault.Fault{Spec: s, State: fault.Active}}
	if err := m.place(ctx, h); err != nil {
		return fault.Fault{}, err
	}
	if err := m.admit(h); err != nil {
		return fault.Fault{}, err
	}
	if err := m.enforce(ctx, h); err != nil {
		m.drop(h)
		return fault.Fault{}, errors.Join(err, m.restore(ctx, h))
	}
	m.rebase(ctx, h)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.schedule(h)
	if s.RequestID != "" {
		m.requests[s.RequestID] = request{id: h.fault.ID, finger: fingerprint(s)}
	}
	m.publish("applied", h.fault)
	return h.fault, nil
}

// replay finds the fault that an earlier request of the same id made.
func (m *Manager) replay(s fault.Spec) (fault.Fault, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, r := range m.requests {
		if !r.ended.IsZero() && time.Since(r.ended) > requestMemory {
			delete(m.requests, id)
		}
	}
	r, ok := m.requests[s.RequestID]
	if !ok || s.RequestID == "" {
		return fault.Fault{}, false, nil
	}
	if r.finger != fingerprint(s) {
		return fault.Fault{}, true, &qdisc.FieldError{Field: "request_id", Value: s.RequestID, Want: "an id of its own for each different request"}
	}
	h, ok := m.held[r.id]
	if !ok {
		return fault.Fault{}, true, fmt.Errorf("apply: request id %q made fault %s, which has ended", s.RequestID, r.id)
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
	h.fault.Warnings = h.warnings()
	return nil
}

// warnings are what the user should know about what he asked for.
func (h *held) warnings() []string {
	w := h.fault.Spec.Packet.Warnings()
	if h.fault.Engine == fault.Netem && !h.places[0].Match.Whole() {
		w = append(w, fmt.Sprintf("netem on the lab's wire impairs every packet on that link, not only those of %s", h.fault.Spec.Target))
	}
	return w
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
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.held {
		for _, p := range h.places {
			if slices.ContainsFunc(places, func(q target.Place) bool { return q.Key() == p.Key() }) {
				return h.fault.Engine
			}
		}
	}
	return ""
}

// admit takes h into the books, unless it cannot stand beside what is there.
func (m *Manager) admit(h *held) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errors.New("apply: the agent is shutting down")
	}
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
	m.nextID++
	h.fault.ID = fmt.Sprintf("%s%d", m.prefix, m.nextID)
	h.fault.Applied = time.Now()
	h.fault.Expires = h.fault.Applied.Add(h.fault.Spec.TTL)
	m.held[h.fault.ID] = h
	return nil
}

// drop takes h out of the books.
func (m *Manager) drop(h *held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.held, h.fault.ID)
	if r, ok := m.requests[h.fault.Spec.RequestID]; ok {
		r.ended = time.Now()
		m.requests[h.fault.Spec.RequestID] = r
	}
}

func sharesSlot(a, b *held) bool {
	return slices.ContainsFunc(a.slots(), func(s slot) bool {
		return slices.ContainsFunc(b.slots(), func(o slot) bool { return o.key == s.key })
	})
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

// inOrder returns the held faults in the order in which they were applied. The
// caller holds the lock.
func (m *Manager) inOrder() []*held {
	hs := slices.Collect(maps.Values(m.held))
	slices.SortFunc(hs, func(a, b *held) int { return a.fault.Applied.Compare(b.fault.Applied) })
	return hs
}
