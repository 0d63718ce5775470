package netem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// Engine is the sch_netem engine. It needs CAP_NET_ADMIN and, for other namespaces
// than its own, CAP_SYS_ADMIN. It is safe for concurrent use; calls for one device
// run one after another. Between calls it holds no namespace open.
type Engine struct {
	mu      sync.Mutex
	devices map[key]*device
}

// key is a device; a place is a device and a flow there.
type key struct {
	namespace string
	index     int
}

// device is what the engine remembers of a device besides what the kernel tells.
type device struct {
	mu sync.Mutex
	// owner is the place whose impairment is in force, asked that impairment; the
	// zero Place when there is none, or none that this process set.
	owner target.Place
	asked qdisc.Netem
	// table is the distribution whose table the kernel may still hold, which it
	// never tells.
	table qdisc.Distribution
	tally tally
}

// held reports whether an impairment that this process set is in force.
func (d *device) held() bool { return d.owner.Index != 0 }

// unknownTable stands for any table: what matters is that it is not uniform.
const unknownTable = qdisc.Normal

// New returns an engine that knows of no fault.
func New() *Engine { return &Engine{devices: map[key]*device{}} }

// Neutral gives a device of ours the root that faults are set in: a netem that
// impairs nothing, with a queue of qdisc.DefaultLimit packets. A root that stands
// there already becomes neutral. The error is errors.ErrUnsupported on a kernel
// without sch_netem and a ConflictError for a root of somebody else.
func (e *Engine) Neutral(ctx context.Context, p target.Place) error {
	return e.with(ctx, p, func(c *qdisc.Conn, d *device) error {
		from, err := root(c, d, p)
		if err != nil {
			return err
		}
		return d.change(c, p, from, qdisc.Netem{})
	})
}

// Set makes n the whole impairment of the device, in one message that loses no
// packet, and reads it back. When it fails, what was in force before still is. The
// error is fs.ErrNotExist when the device or its namespace is gone, a
// ConflictError where somebody else's root or another flow's impairment stands,
// and errors.ErrUnsupported for what this kernel or this engine cannot do.
func (e *Engine) Set(ctx context.Context, p target.Place, n qdisc.Netem, _ time.Time) error {
	if err := n.Validate(); err != nil {
		return err
	}
	return e.with(ctx, p, func(c *qdisc.Conn, d *device) error {
		from, err := root(c, d, p)
		if err != nil {
			return err
		}
		if d.held() && d.owner.Key() != p.Key() && !from.Netem.IsZero() {
			return &ConflictError{Place: p, Found: "the impairment of another flow, " + d.asked.String()}
		}
		return d.change(c, p, from, n)
	})
}

// Read returns what is in force for p, and its counters since p had no impairment
// last. The error is fs.ErrNotExist when the device or its namespace is gone.
func (e *Engine) Read(ctx context.Context, p target.Place) (fault.Status, error) {
	var status fault.Status
	err := e.with(ctx, p, func(c *qdisc.Conn, d *device) error {
		s, err := c.Root(nameOf(p))
		if err != nil {
			return err
		}
		if s.Ours() && s.Other != nil {
			return &ConflictError{Place: p, Found: fmt.Sprintf("%v, to which somebody else gave %v", s, s.Other)}
		}
		if d.held() && d.owner.Key() != p.Key() {
			return nil
		}
		status.Counters = d.tally.sum
		if !s.Ours() || s.Netem.IsZero() {
			return nil
		}
		status.Netem = s.Netem
		status.Netem.Seed = 0 // one that the kernel drew itself
		if len(d.asked.Differences(s.Netem)) == 0 {
			status.Netem.Seed, status.Netem.Distribution = d.asked.Seed, d.asked.Distribution
		}
		status.Counters = d.tally.now(s)
		status.CountersMissing = missing(s.Netem)
		return nil
	})
	return status, err
}

// Clear makes the root neutral again, in place: packets that wait keep their time,
// and later ones overtake them. It reads back, and does nothing where no root of
// ours stands, or where the device is gone.
func (e *Engine) Clear(ctx context.Context, p target.Place) error {
	err := e.with(ctx, p, func(c *qdisc.Conn, d *device) error {
		if d.held() && d.owner.Key() != p.Key() {
			return nil
		}
		s, err := c.Root(nameOf(p))
		if err != nil || !s.Ours() || s.Netem.IsZero() && s.Other == nil {
			return err
		}
		return d.change(c, p, s, qdisc.Netem{})
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Close clears what this process set and did not clear.
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
		d.mu.Unlock()
	}
	var errs []error
	for _, p := range places {
		errs = append(errs, e.Clear(context.Background(), p))
	}
	return errors.Join(errs...)
}

// with calls f with a connection to p's namespace, one call for a device at a time.
func (e *Engine) with(ctx context.Context, p target.Place, f func(*qdisc.Conn, *device) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	switch {
	case p.Hook != target.Egress:
		return fmt.Errorf("netem: %s: a qdisc works on egress: %w", p, errors.ErrUnsupported)
	case p.Index <= 0:
		return fmt.Errorf("netem: %s: %w", p, fs.ErrNotExist)
	}
	k := key{p.Namespace, p.Index}
	e.mu.Lock()
	d := e.devices[k]
	if d == nil {
		d = &device{table: unknownTable}
		e.devices[k] = d
	}
	e.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	c, err := dial(p)
	if err == nil {
		defer func() { _ = c.Close() }()
		if !p.Owned {
			return notOwned(c, p)
		}
		err = f(c, d)
	}
	if errors.Is(err, fs.ErrNotExist) { // what comes back under this index is another device
		d.owner, d.asked, d.table, d.tally = target.Place{}, qdisc.Netem{}, unknownTable, tally{}
	}
	return err
}

// dial connects to the namespace that p means. The error is fs.ErrNotExist when
// another one has its name now.
func dial(p target.Place) (*qdisc.Conn, error) {
	ns, err := namespaces.Open(p.Namespace)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }()
	if p.Cookie != 0 {
		switch cookie, err := ns.Cookie(); {
		case err != nil:
			return nil, err
		case cookie != p.Cookie:
			return nil, fmt.Errorf("namespace %q was made anew: %w", p.Namespace, fs.ErrNotExist)
		}
	}
	return qdisc.Dial(qdisc.Config{NetNS: ns.FD(), Namespace: p.Namespace})
}

func nameOf(p target.Place) qdisc.Device { return qdisc.Device{Name: p.Device, Index: p.Index} }

// root returns the state of the root of ours, which it makes where the kernel's
// default stands.
func root(c *qdisc.Conn, d *device, p target.Place) (qdisc.State, error) {
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
	d.owner, d.asked, d.table, d.tally = target.Place{}, qdisc.Netem{}, "", tally{}
	return c.Root(nameOf(p))
}
