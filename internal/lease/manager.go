package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"netemd/internal/content"
	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/target"
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
	// Choose says which engine auto takes at these places, and why.
	Choose func(ctx context.Context, places []target.Place) (fault.Engine, string, error)
	// Stream may be nil: stream faults are then refused.
	Stream StreamEngine
	// Process may be nil: outages of services are then refused.
	Process ProcessEngine
	// Requests may be nil: faults of requests are then refused.
	Requests RequestEngine
	// Resolve turns what a fault is aimed at, a target's name or a selector, into places
	// that exist now.
	Resolve func(ctx context.Context, s fault.Spec) (target.Target, error)
	// Lookup finds the addresses of a selector's host names again; nil is never.
	Lookup target.Lookup
	// LookupEvery is how often that is done while such a fault is held; 0 is never.
	LookupEvery time.Duration
	// Protect refuses a fault by which one could lock oneself out, before an engine is
	// asked; nil refuses none. It is asked again when a host name moves.
	Protect func(ctx context.Context, s fault.Spec, places []target.Place) error
	// Offloads reads and switches off segmentation offload; nil does neither, and
	// refuses a fault that asks for it.
	Offloads Offloads
	// LookEvery is how often the kernel is compared with what is held; 0 is only when
	// somebody asks.
	LookEvery time.Duration
	// Journal is told each step before the kernel is changed; nil is none.
	Journal Journal
	// Standing is the error why what a target stands for is gone, although its places are
	// there, and matches fs.ErrNotExist then; nil is target.Target.Standing.
	Standing func(t target.Target) error
	// Limits bound what is held.
	Limits Limits
	Log    *slog.Logger
}

// Manager holds all faults. It is safe for concurrent use. What changes the kernel
// at one device, or for one target and layer, is done one at a time; a hung proxy does
// not hold up the packet layer, nor one device another.
type Manager struct {
	cfg    Config
	events *broadcaster
	// prefix begins the ids, and this life's name: a client which outlived one agent does not
	// end a fault of the next.
	prefix  string
	looking sync.WaitGroup
	// background runs f until Close, which waits for it. Nobody may call it after that has
	// begun, which closed says.
	background func(f func(context.Context))
	stop       context.CancelFunc
	lanes      lanes

	// closing is closed when Close begins.
	closing chan struct{}

	// mu guards what follows, and is never held over a call to an engine or the Journal.
	mu     sync.Mutex
	nextID int
	// lastToken is the one of the newest Hold.
	lastToken uint64
	held      map[string]*held
	// order has what held has, in the order in which it was applied.
	order    []*held
	requests map[string]*request // by requestKey
	forgot   time.Time           // when the old ones among them were looked for last
	settings map[string]settings // of paths, by their lanes
	ended    []ended             // oldest first
	ends     []pastEnd           // oldest first
	records  []fault.Fault       // of outages, oldest first
	// followers counts those of packets, by their owners.
	followers map[string]int
	// line are the Applies that wait, in the order in which they came.
	line []*waiter
	// restored are the ids of another life that were put back, and what became of them.
	restored map[string]bool
	// closed refuses what is new, kept also that what was is cleared; shut says that closing
	// is closed.
	closed, kept, shut bool
}

// held is a fault with what is needed to end it. Its fields are written by the
// holder of its lane, under the Manager's lock.
type held struct {
	fault  fault.Fault
	target target.Target
	slots  []slot
	// stale are slots that it has left, because a host name moved, and that could not be
	// cleared yet.
	stale []slot
	timer *time.Timer
	// whole says that it was put into force, and its caller is told so.
	whole bool
	// base is what its places had counted when the fault began or was changed, carried
	// what it had counted at places that it left since.
	base, carried fault.Counters
	// past is what it had counted before it was changed.
	past fault.Counters
	// left is what a rule did at places that it has left.
	left content.Log
	// ending faults are no longer part of what is put into force.
	ending bool
	// gone says that what it was aimed at is not there any more although its places are, and
	// that it is in force nowhere therefore; stuck that it could not be taken off yet.
	gone, stuck bool
	// kept says that it was handed over: it is to be put back as it was acknowledged last,
	// which is changing while a change is under way.
	kept     bool
	changing *fault.Fault
	// tries counts how often ending it failed.
	tries int
	notes notes
	// hold is the client's that holds it; nil for none.
	hold *Hold
	// within is the held fault beside whose command it was made; nil for none. group is the
	// outermost of these, itself for one that a client holds; nil where none does. Only those
	// of one group combine.
	within, group *held
	// clock goes through its schedule; nil without one.
	clock *clock
	// run is what its outages did, nil for none; early what happened before it was told as
	// applied, and resumed that they began in another life.
	run     *fault.OutageRun
	early   []outageEvent
	resumed bool
	// mending is what was tried to put it back.
	mending mending
	// inForce is when it was seen in force last, away what it was not since it began.
	inForce time.Time
	away    absence
	// together are the settings of paths that were read for others of the same ApplyAll, by
	// their lanes; nil for others.
	together map[string][]fault.Offload
}

// New returns a Manager without faults. Close must be called.
func New(cfg Config) *Manager {
	if cfg.Journal == nil {
		cfg.Journal = noJournal{}
	}
	if cfg.Standing == nil {
		cfg.Standing = target.Target.Standing
	}
	cfg.Limits = cfg.Limits.normalize()
	life := newLife()
	m := &Manager{
		cfg: cfg, events: newBroadcaster(life), prefix: life[:prefixLength], closing: make(chan struct{}),
		held: map[string]*held{}, requests: map[string]*request{}, settings: map[string]settings{}, lanes: lanes{all: map[string]*lane{}},
		restored: map[string]bool{}, followers: map[string]int{},
	}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.background = func(f func(context.Context)) { m.looking.Go(func() { f(ctx) }) }
	if cfg.LookEvery > 0 {
		m.background(func(ctx context.Context) { every(ctx, cfg.LookEvery, m.lookAtAll) })
	}
	if cfg.LookupEvery > 0 && cfg.Lookup != nil {
		m.background(func(ctx context.Context) { every(ctx, cfg.LookupEvery, m.lookUpAll) })
	}
	return m
}

func (h *held) isPacket() bool { return h.fault.Spec.OnPackets() }

// Apply makes a fault, or returns the one that an earlier call with the same
// RequestID made. When it fails, everything is as it was. Where another fault is in the
// way it waits for its end, in the order in which they came, as long as Spec.Wait; the
// error is fault.ErrConflict after that, and fault.ErrBusy where too many wait or are held.
func (m *Manager) Apply(ctx context.Context, s fault.Spec) (fault.Fault, error) {
	f, _, err := m.make(ctx, s, false, nil)
	return f, err
}

// make is Apply, and Hold where hold is said: the answer is then the Hold, nil for a fault
// that an earlier call made.
func (m *Manager) make(ctx context.Context, s fault.Spec, hold bool, waiting func(error)) (f fault.Fault, holder *Hold, err error) {
	if s, err = m.check(s, hold); err != nil {
		return fault.Fault{}, nil, err
	}
	f, ok, made, err := m.claim(ctx, s)
	if ok || err != nil {
		return f, nil, err
	}
	var h *held
	defer func() {
		id := f.ID
		if id == "" && err == nil { // an engine panicked, and the fault stands
			id = m.admitted(h)
		}
		made(id)
	}()
	w := &waiter{began: time.Now(), patient: s.Wait > 0}
	defer m.leaveLine(w)
	for {
		h = &held{fault: fault.Fault{Spec: s, State: fault.Active}}
		h.wind(0)
		if hold {
			h.group = h
		}
		failed := m.apply(ctx, h, w, hold)
		if failed == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			return h.fault, h.hold, nil
		}
		if _, inTheWay := errors.AsType[obstacle](failed); !inTheWay || !w.patient {
			return fault.Fault{}, nil, failed
		}
		if err := m.wait(ctx, w, h, failed, waiting); err != nil {
			return fault.Fault{}, nil, err
		}
	}
}

// check validates s and fills in what was not said. A client that holds the fault renews its
// time, so that this says nothing of how long the fault is to last.
func (m *Manager) check(s fault.Spec, hold bool) (fault.Spec, error) {
	var limits error
	if s.TTL > m.cfg.Limits.MaxTTL && s.TTL <= fault.MaxTTL { // above that Validate says it
		limits = m.checkTTL(s.TTL)
	}
	if err := errors.Join(s.Validate(), limits, m.checkWait(s.Wait)); err != nil {
		return s, err
	}
	if s.TTL == 0 && !hold {
		var err error
		if s.TTL, err = m.scheduledTTL(s); err != nil {
			return s, err
		}
	}
	if s.TTL == 0 {
		s.TTL = m.cfg.Limits.TTL
	}
	if s.Direction == "" {
		s.Direction = fault.To
	}
	return withSeed(s), nil
}

// apply makes h, unless something is in its way: the error is an obstacle then.
func (m *Manager) apply(ctx context.Context, h *held, w *waiter, hold bool) error {
	m.mu.Lock()
	full := m.checkRoom(h.fault.Spec) // before anything is looked up for one that has no place
	m.mu.Unlock()
	if full != nil {
		return fmt.Errorf("apply: %w", full)
	}
	leave, err := m.enterNew(ctx, h)
	if err != nil {
		return err
	}
	defer leave()
	failpoint.At("lease.apply.begin")
	if err := m.plan(ctx, h); err != nil {
		return err
	}
	if err := m.admit(h, w); err != nil {
		return err
	}
	if err := m.cfg.Journal.Intend(ctx, h.fault, h.places()); err != nil {
		m.drop(h)
		return fmt.Errorf("apply: %w", err)
	}
	failpoint.At("lease.apply.intended")
	err = m.begin(ctx, h)
	if err == nil {
		failpoint.At("lease.apply.enforced")
		if err = m.cfg.Journal.Hold(ctx, h.fault); err != nil {
			err = fmt.Errorf("apply: %w", err)
		}
	}
	if err != nil {
		return errors.Join(err, m.takeBack(ctx, h))
	}
	failpoint.At("lease.apply.recorded")
	m.rebase(ctx, h)
	m.notePlaces(h)
	if !m.stands(h, hold) {
		return errors.Join(errClosed, m.takeBack(ctx, h))
	}
	return nil
}

// stands makes h one of those that are held, by its holder if it has one. It is false when
// the others have been handed over meanwhile, without h.
func (m *Manager) stands(h *held, hold bool) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.kept {
		return false
	}
	h.whole, h.inForce = true, time.Now()
	m.startClock(h)
	if hold {
		m.attach(h, h.fault.Spec.Owner)
		failpoint.At("lease.hold.attached")
	}
	m.publish("applied", h, h.hold)
	m.startOutage(h)
	return true
}

// begin changes the kernel.
func (m *Manager) begin(ctx context.Context, h *held) error {
	if err := m.offloadOff(ctx, h); err != nil {
		return err
	}
	failpoint.At("lease.apply.offload")
	return m.enforce(ctx, h, "lease.apply.place")
}

// takeBack undoes a begin that failed half-way. What cannot be undone is not forgotten:
// the fault is listed as one whose time is over, which is tried to be cleared again.
func (m *Manager) takeBack(ctx context.Context, h *held) error {
	failpoint.At("lease.undo.begin")
	m.mu.Lock()
	h.ending = true
	m.mu.Unlock()
	err := m.restore(ctx, h)
	failpoint.At("lease.undo.restored")
	err = errors.Join(err, m.offloadRestore(ctx, h))
	failpoint.At("lease.undo.offload")
	if err == nil {
		m.recordEnd(ctx, h.fault.ID, fault.Cleared)
		failpoint.At("lease.undo.recorded")
		m.drop(h)
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	h.ending, h.fault.Expires = false, time.Now()
	h.notes.ending = "it was refused, and what was done of it could not be undone: " + err.Error()
	h.fault.Warnings = h.warnings()
	id, over := h.fault.ID, h.fault.Expires
	h.timer.Stop()
	h.timer = time.AfterFunc(firstRetry, func() { m.expire(id, over) })
	return fmt.Errorf("undo, which is tried again: %w", err)
}

// drop takes h out of the books.
func (m *Manager) drop(h *held) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h.timer.Stop()
	h.stopClock()
	delete(m.held, h.fault.ID)
	m.order = slices.DeleteFunc(m.order, func(o *held) bool { return o == h })
	if r := m.requests[requestKey(h.fault.Spec)]; r != nil && r.fault == h.fault.ID {
		r.ended = time.Now()
	}
	m.callNext()
}

// inOrder returns the held faults in the order in which they were applied. The
// caller holds the lock.
func (m *Manager) inOrder() []*held { return slices.Clone(m.order) }
