package netem

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/match"
	"netemd/internal/target"
	"netemd/qdisc"
)

// detour is the way of a flow on a device of somebody else: what is at the hook, a
// filter at a clsact or a program at tcx, sends what it selects to an ifb, whose root
// netem impairs it, and which sends it on from where it was.
type detour struct {
	at target.Place
	// ifb is a macvlan, which hands over to gate, behind the egress by tcx.
	ifb, gate link
	// gatekeeper is the number of the gate's program; 0 for any.
	gatekeeper uint32
	// tcx says that entry is what is at the hook, and not filter. There is no entry
	// without a fault, nor one of another process.
	tcx   bool
	entry *entry
	// madeClsact is what the ifb's record said last, in case that somebody deletes it.
	madeClsact bool
	// filter is as it was set, with the number of its program.
	filter filter
	root   root
	// seen are the packets of the filters before this one, before is what this one
	// had counted when the fault began.
	seen, before uint64
	// notes are what the user should know of the placement.
	notes []string
	// cleared is when the filter went; the zero time for a detour in use. Each life
	// has its own number.
	cleared time.Time
	life    int
}

// failAt is called after each change of the kernel's state; tests end the process there.
var failAt = failpoint.At

// undo is what a failed placement takes back, in reverse.
type undo []func() error

func (u *undo) push(f func() error) { *u = append(*u, f) }

func (u undo) run() error {
	var errs []error
	for _, f := range slices.Backward(u) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// setDetour makes n the impairment of p's flow. What is whole is changed in place,
// what is missing or not as it should be is made anew.
func (e *Engine) setDetour(c *conn, d *device, p target.Place, n qdisc.Netem) error {
	l, door, header, err := c.survey(p)
	if err != nil {
		return err
	}
	x, err := e.known(c, d, p)
	if err != nil {
		return err
	}
	if x == nil {
		x = &detour{at: p}
	}
	var made undo
	before := *x
	if !x.cleared.IsZero() {
		x.notes, x.seen, x.before = nil, 0, 0
	}
	if err := e.lay(c, x, l, door, header, n, &made); err != nil {
		err = errors.Join(err, made.run())
		x.restore(before)
		return err
	}
	if !x.cleared.IsZero() { // it was on its way out
		x.cleared = time.Time{}
		x.life++ // its drain ends
	}
	d.detours[p.Key()] = x
	return nil
}

// survey looks at a place before anything is changed: at its device, at what stands
// at the hooks, at the header of its packets, and whether its match can be had.
func (c *conn) survey(p target.Place) (link, entrance, int, error) {
	l, err := c.subject(p)
	if err != nil {
		return link{}, entrance{}, 0, err
	}
	if l.flags&unix.IFF_LOOPBACK != 0 && p.Hook == target.Ingress {
		return link{}, entrance{}, 0, fmt.Errorf("netem: %s: every packet of a loopback device passes its egress, once; a fault belongs there: %w", p, errors.ErrUnsupported)
	}
	header, err := l.header()
	if err != nil {
		return link{}, entrance{}, 0, err
	}
	if _, err := match.Classifier(p.Match, header); err != nil {
		return link{}, entrance{}, 0, fmt.Errorf("netem: %s: %w", p, err)
	}
	door, err := c.entrance(l)
	return l, door, header, err
}

// byTCX reports whether a new detour for x takes the way by tcx: where there is no
// clsact, which would have to be made, and on devices with Ethernet's header, since a
// program's redirect adds none.
func (e *Engine) byTCX(x *detour, door entrance, header int) bool {
	free := door.kind == "" || door.kind == "ingress" && x.at.Hook == target.Egress || x.entry != nil
	return free && header == 14 && !e.clsactOnly && haveTCX()
}

// lay makes of x what it shall be, from the ifb to the filter.
func (e *Engine) lay(c *conn, x *detour, l link, door entrance, header int, n qdisc.Netem, made *undo) error {
	former, formerGate := x.ifb, x.gate
	from, whole, err := e.whole(c, x)
	if err != nil {
		return err
	}
	if !whole {
		x.tcx = e.byTCX(x, door, header)
	}
	if !x.tcx {
		if err := door.check(x.at); err != nil {
			return err
		}
	}
	if whole {
		back := from.Netem
		if len(x.root.asked.Differences(back)) == 0 {
			back = x.root.asked // with the distribution
		}
		if !x.cleared.IsZero() { // another fault
			x.root.tally, x.seen, x.before = tally{base: from.Stats}, 0, 0
		}
		if err := x.root.change(c, x.ifb.device(), x.at, from, n); err != nil {
			return err
		}
		made.push(func() error {
			now, err := c.Root(x.ifb.device())
			if err != nil {
				return err
			}
			return x.root.change(c, x.ifb.device(), x.at, now, back)
		})
	} else if err := e.makeIFB(c, x, door, n, made); err != nil {
		if !x.tcx || !errors.Is(err, errors.ErrUnsupported) || door.check(x.at) != nil {
			return err
		}
		// Without macvlan, say.
		x.tcx = false
		if undone := made.run(); undone != nil {
			return errors.Join(err, undone)
		}
		*made = nil
		if err := e.makeIFB(c, x, door, n, made); err != nil {
			return err
		}
	}
	notes := len(x.notes)
	if err := e.enter(c, x, l, door, header, made); err != nil {
		return err
	}
	for _, note := range c.ahead(x, l) {
		if !slices.Contains(x.notes, note) {
			x.notes = append(x.notes, note)
		}
	}
	for _, note := range x.notes[notes:] {
		e.log.Warn("netem: "+note, "place", x.at.String())
	}
	if !whole && former.index != 0 {
		err := errors.Join(e.deleteRemains(c, former), e.discard(c, formerGate))
		failAt("netem.remains.gone")
		return err
	}
	return nil
}

// enter puts at the hook what sends the flow of x to its ifb.
func (e *Engine) enter(c *conn, x *detour, l link, door entrance, header int, made *undo) error {
	if x.tcx {
		return c.hold(x, l, header, made)
	}
	return c.alone(l, func() error {
		if now, err := c.entrance(l); err != nil {
			return err
		} else if now.kind == "" {
			door = now // another agent took it away since
		}
		if err := c.open(x, l, door, made); err != nil {
			return err
		}
		return e.redirect(c, x, l, header, made)
	})
}

// deleteRemains deletes what is left of an ifb that was not whole, unless its index is
// another device's by now.
func (e *Engine) deleteRemains(c *conn, former link) error {
	now, err := c.link(former.name, former.index)
	if err != nil {
		return absent(err)
	}
	if !now.ourKind() || now.name != former.name && !e.made(now) {
		return nil
	}
	return c.deleteLink(now)
}

// known returns the detour of p: as remembered, or as an earlier process with the same
// mark left it; nil when there is none.
func (e *Engine) known(c *conn, d *device, p target.Place) (*detour, error) {
	if x := d.detours[p.Key()]; x != nil {
		return x, nil
	}
	all, err := c.links()
	if err != nil {
		return nil, err
	}
	for try := range tries {
		i := slices.IndexFunc(all, func(l link) bool { return l.name == ifbName(e.state, p, try) })
		if i < 0 {
			return nil, nil
		}
		r, ok := parseRecord(all[i].alias)
		if ok && e.made(all[i]) && r.device == p.Index && r.hook == p.Hook && !d.has(all[i]) {
			// The program of a filter that this process did not set is another one.
			x := &detour{at: p, ifb: all[i], tcx: r.tcx, filter: filter{cookie: all[i].name}, root: root{table: unknownTable}}
			if g := slices.IndexFunc(all, func(l link) bool { return l.index == x.ifb.lower && e.made(l) }); g >= 0 {
				x.gate = all[g]
			}
			return x, nil
		}
	}
	return nil, nil
}

// has reports whether an ifb is that of a detour here: of another flow, since a
// Rematch.
func (d *device) has(ifb link) bool {
	for _, x := range d.detours {
		if x.ifb.index == ifb.index {
			return true
		}
	}
	return false
}

// rematch is Rematch from p to q.
func (e *Engine) rematch(c *conn, d *device, p, q target.Place) error {
	x := d.detours[p.Key()]
	if x == nil || !x.cleared.IsZero() {
		return fmt.Errorf("netem: %s: no fault there: %w", p, fs.ErrNotExist)
	}
	if other := d.detours[q.Key()]; other != nil && other != x {
		return &ConflictError{Place: q, Found: "another fault on the same flow"}
	}
	l, door, header, err := c.survey(q)
	if err != nil {
		return err
	}
	if !x.tcx {
		if err := door.check(q); err != nil {
			return err
		}
	}
	before := *x
	x.at = q
	x.filter.program = 0
	if x.entry != nil {
		other := *x.entry
		other.number = 0
		x.entry = &other
	}
	var made undo
	if err = e.enter(c, x, l, door, header, &made); err != nil {
		err = errors.Join(err, made.run())
		x.restore(before)
		return err
	}
	delete(d.detours, p.Key())
	d.detours[q.Key()] = x
	return nil
}

// readDetour is Read on a device of somebody else. A filter that leads to nowhere is
// deleted.
func (e *Engine) readDetour(c *conn, d *device, p target.Place) (fault.Status, error) {
	l, err := c.subject(p)
	if err != nil {
		return fault.Status{}, err
	}
	x, err := e.known(c, d, p)
	if x == nil || err != nil {
		return fault.Status{Reason: "the ifb of the fault is gone"}, err
	}
	s, whole, err := e.whole(c, x)
	if err != nil {
		return fault.Status{}, err
	}
	if !x.cleared.IsZero() {
		return fault.Status{Counters: x.root.tally.sum, Queued: uint64(s.Stats.Queued)}, nil
	}
	found, leads, err := c.selected(x, l)
	if err != nil {
		return fault.Status{}, err
	}
	status := x.root.status(s)
	if !leads || !whole || s.Other != nil {
		status.Netem = qdisc.Netem{} // not what was asked for
		switch {
		case !found:
			status.Reason = "the program or filter of the fault was detached"
		case !whole:
			status.Reason = "the ifb of the fault, or its root qdisc, was taken away or set down"
		case s.Other != nil:
			status.Reason = fmt.Sprintf("another qdisc is there: %v", s.Other)
		default:
			status.Reason = "the program or filter of the fault was changed"
		}
	}
	if found && !whole { // what is sent to an ifb that is gone or down is lost
		e.log.Warn("netem: somebody took away the ifb of a fault, or its root; its flow passes unimpaired", "place", p.String(), "ifb", x.ifb.name)
		return status, c.release(x, l)
	}
	status.Counters.Seen = x.seen + x.filter.packets - x.before
	return status, nil
}

// selected reports whether something of x is at the hook, and whether it is as x set
// it, and reads its count.
func (c *conn) selected(x *detour, l link) (found, leads bool, err error) {
	if x.tcx {
		if x.entry == nil {
			return false, false, nil
		}
		x.filter.packets = x.entry.packets()
		err := x.entry.attached(l)
		return err == nil, err == nil && x.entry.to == x.ifb.index, absent(err)
	}
	all, err := c.filters(l, x.at.Hook)
	if err != nil {
		return false, false, err
	}
	now, err := find(all, x.filter.cookie)
	if err != nil {
		return false, false, nil //nolint:nilerr // it is gone
	}
	if x.filter.program != 0 && now.program != x.filter.program {
		return true, false, nil
	}
	x.filter.packets = now.packets
	return true, x.leads(now), nil
}

// release takes away what sends the flow of x to its ifb.
func (c *conn) release(x *detour, l link) error {
	if x.tcx {
		x.settle()
		return nil
	}
	return c.dropFilter(l, x.at.Hook, x.filter.cookie)
}
