package netem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// Config is what an engine needs to know. The zero value will do for a test.
type Config struct {
	// State marks what this engine leaves in the kernel as that of one agent, such as
	// the agent's state folder: Sweep takes away what bears the same mark. Engines
	// that run at the same time must not share it.
	State string
	// Log gets what has no caller; nil means slog.Default.
	Log *slog.Logger
}

// Engine is the sch_netem engine. It needs CAP_NET_ADMIN and, for other namespaces
// than its own, CAP_SYS_ADMIN; for devices of others CAP_BPF, and where ifb is a
// module that is not loaded, CAP_SYS_MODULE. It is safe for concurrent use; calls for one device
// run one after another. Between calls it holds no namespace open but as namespaces.Session does.
type Engine struct {
	state string
	log   *slog.Logger
	// dial connects to a namespace, by dialRoots but for tests on kernels without netem.
	dial func(context.Context, *namespaces.Session) (roots, error)
	// clsactOnly leaves tcx aside, as on a kernel before 6.6.
	clsactOnly bool
	// drains are the ifbs that still let go of their packets.
	drains sync.WaitGroup

	mu      sync.Mutex
	devices map[key]*device
	// forgetAt is how many devices are remembered when next those are forgotten whose
	// namespace is gone.
	forgetAt int
}

// New returns an engine that knows of no fault.
func New(cfg Config) *Engine {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	return &Engine{
		state: mark(cfg.State), log: cfg.Log, devices: map[key]*device{},
		dial: dialRoots,
	}
}

// Neutral gives a device of ours the root that faults are set in: a netem that
// impairs nothing, with a queue of qdisc.DefaultLimit packets. A root that stands
// there already becomes neutral. The error is errors.ErrUnsupported on a kernel
// without sch_netem and a ConflictError for a root of somebody else.
func (e *Engine) Neutral(ctx context.Context, p target.Place) error {
	return e.with(ctx, p, func(c *conn, d *device) error {
		if !p.Owned {
			return fmt.Errorf("netem: %s: netemd did not make this device, and leaves its root alone: %w", p, errors.ErrUnsupported)
		}
		from, err := d.ourRoot(c, p)
		if err != nil {
			return err
		}
		return d.change(c, p, from, qdisc.Netem{})
	})
}

// Set makes n the whole impairment at p, in one message that loses no packet, and
// reads it back. When it fails, what was in force before still is. On a device of
// somebody else, a zero n places what Clear takes away, and impairs nothing.
//
// The error is fs.ErrNotExist when the device or its namespace is gone, a
// ConflictError where somebody else's root or another flow's impairment stands, and
// errors.ErrUnsupported for what this kernel or this engine cannot do.
func (e *Engine) Set(ctx context.Context, p target.Place, n qdisc.Netem, _ time.Time) error {
	if err := n.Validate(); err != nil {
		return err
	}
	return e.with(ctx, p, func(c *conn, d *device) error {
		if !p.Owned {
			return e.setDetour(c, d, p, n)
		}
		from, err := d.ourRoot(c, p)
		if err != nil {
			return err
		}
		if d.held() && d.owner.Key() != p.Key() && !from.Netem.IsZero() {
			return &ConflictError{Place: p, Found: "the impairment of another flow, " + d.root.asked.String()}
		}
		return d.change(c, p, from, n)
	})
}

// Read returns what is in force for p, and its counters since p had no impairment
// last. The error is fs.ErrNotExist when the device or its namespace is gone.
func (e *Engine) Read(ctx context.Context, p target.Place) (fault.Status, error) {
	var status fault.Status
	err := e.with(ctx, p, func(c *conn, d *device) (err error) {
		if !p.Owned {
			status, err = e.readDetour(c, d, p)
			return err
		}
		s, err := c.Root(nameOf(p))
		if err != nil {
			return err
		}
		if s.Ours() && s.Other != nil {
			return &ConflictError{Place: p, Found: fmt.Sprintf("%v, to which somebody else gave %v", s, s.Other)}
		}
		if !d.held() || d.owner.Key() == p.Key() {
			status = d.root.status(s)
		}
		return nil
	})
	return status, err
}

// Clear takes the impairment of p away and reads back that it is gone; nothing to
// clear, and a device that is gone, are no errors. Packets that wait keep their time,
// and later ones overtake them: on a device of ours in the root, which stays and
// becomes neutral in place, on others in the ifb, which goes in the background when
// it is empty, after 10 s at most.
func (e *Engine) Clear(ctx context.Context, p target.Place) error {
	err := e.with(ctx, p, func(c *conn, d *device) error {
		if !p.Owned {
			return e.clearDetour(c, d, p)
		}
		if d.held() && d.owner.Key() != p.Key() {
			return nil
		}
		s, err := c.Root(nameOf(p))
		if err != nil || !s.Ours() || s.Netem.IsZero() && s.Other == nil {
			return err
		}
		return d.change(c, p, s, qdisc.Netem{})
	})
	return absent(err)
}

// Rematch makes the fault at p, on a device of somebody else, one of the flow of m: the
// filter is replaced in one step, so that each packet meets the one or the other, and
// the fault is then the one at p with that match. The error is fs.ErrNotExist when
// there is no fault at p, and a ConflictError when there is one on that flow already;
// after an error the fault is as before.
func (e *Engine) Rematch(ctx context.Context, p target.Place, m target.Match) error {
	q := p
	q.Match = m
	return e.with(ctx, p, func(c *conn, d *device) error {
		if p.Owned {
			return fmt.Errorf("netem: %s: the root of the device has every flow: %w", p, errors.ErrUnsupported)
		}
		return e.rematch(c, d, p, q)
	})
}

// Notes are what a user should know of where the fault at p sits: that a filter of
// somebody else comes before it.
func (e *Engine) Notes(p target.Place) []string {
	e.mu.Lock()
	d := e.devices[key{p.Namespace, p.Index}]
	e.mu.Unlock()
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.detours[p.Key()]; x != nil {
		return slices.Clone(x.notes)
	}
	return nil
}

// Close clears what this process set and did not clear, and waits until the last
// ifb is gone, some 10 s at most.
func (e *Engine) Close() error {
	e.mu.Lock()
	devices := slices.Collect(maps.Values(e.devices))
	e.mu.Unlock()
	var places []target.Place
	for _, d := range devices {
		d.mu.Lock()
		if d.held() {
			places = append(places, d.owner)
		}
		for _, x := range d.detours {
			places = append(places, x.at)
		}
		d.mu.Unlock()
	}
	var errs []error
	for _, p := range places {
		errs = append(errs, e.Clear(context.Background(), p))
	}
	e.drains.Wait()
	return errors.Join(errs...)
}

// conn is the two connections to the namespace of a place, and the namespace itself.
type conn struct {
	roots
	*rtnl
	ns  *namespaces.Session
	log *slog.Logger
}

// Close lets the next one have them.
func (c *conn) Close() error {
	c.ns.Release()
	return nil
}

// with calls f with connections to p's namespace, one call for a device at a time.
func (e *Engine) with(ctx context.Context, p target.Place, f func(*conn, *device) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	switch {
	case p.Owned && p.Hook != target.Egress:
		return fmt.Errorf("netem: %s: a qdisc works on egress: %w", p, errors.ErrUnsupported)
	case p.Index <= 0:
		return fmt.Errorf("netem: %s: %w", p, fs.ErrNotExist)
	}
	k := key{p.Namespace, p.Index}
	d := e.device(k)
	defer d.mu.Unlock()
	defer e.forget(k, d)
	c, err := e.connect(p)
	if err == nil {
		defer func() { _ = c.Close() }()
		if err = f(c, d); err != nil {
			c.ns.Spoil()
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		if x := d.detours[p.Key()]; x != nil {
			x.settle()
		}
		delete(d.detours, p.Key()) // gone with its namespace
	}
	if errors.Is(err, fs.ErrNotExist) { // what comes back under this index is another device
		d.owner, d.root = target.Place{}, root{table: unknownTable}
	}
	return err
}

// connect connects to the namespace that p means. The error is fs.ErrNotExist when
// another one has its name now.
func (e *Engine) connect(p target.Place) (*conn, error) {
	ns, err := namespaces.Share(p.Namespace)
	if err != nil {
		return nil, err
	}
	if p.Cookie != 0 && ns.Cookie() != p.Cookie {
		ns.Release()
		return nil, fmt.Errorf("namespace %q was made anew: %w", p.Namespace, fs.ErrNotExist)
	}
	return e.connectTo(ns)
}

// connectTo connects to a namespace, which it releases with the connections, or when it
// fails.
func (e *Engine) connectTo(ns *namespaces.Session) (*conn, error) {
	ctx := context.Background()
	r, err := e.dial(ctx, ns)
	if err != nil {
		ns.Release()
		return nil, err
	}
	c, err := rtnlIn(ctx, ns)
	if err != nil {
		ns.Release()
		return nil, err
	}
	return &conn{roots: r, rtnl: c, ns: ns, log: e.log}, nil
}

func rtnlIn(ctx context.Context, ns *namespaces.Session) (*rtnl, error) {
	return namespaces.Kept(ctx, ns, func() (*rtnl, error) { return dialRTNL(0, ns.Name()) })
}

func dialRoots(ctx context.Context, ns *namespaces.Session) (roots, error) {
	return namespaces.Kept(ctx, ns, func() (*qdisc.Conn, error) { return qdisc.Dial(qdisc.Config{Namespace: ns.Name()}) })
}

func nameOf(p target.Place) qdisc.Device { return qdisc.Device{Name: p.Device, Index: p.Index} }

// ourRoot returns the state of the root of ours, which it makes where the kernel's
// default stands.
func (d *device) ourRoot(c roots, p target.Place) (qdisc.State, error) {
	s, err := c.Root(nameOf(p))
	if err != nil || s.Ours() {
		return s, err
	}
	if s.Foreign() {
		return s, &ConflictError{Place: p, Found: "a foreign root, " + s.String()}
	}
	if err := c.AddRoot(nameOf(p), qdisc.Netem{}); err != nil {
		return s, err
	}
	failAt("netem.root.added")
	d.owner, d.root = target.Place{}, root{}
	return c.Root(nameOf(p))
}
