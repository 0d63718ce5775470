package netem

import (
	"time"

	"netemd/internal/target"
)

const (
	// drainLimit is how long packets of a cleared fault may keep their time; then they
	// are dropped.
	drainLimit = 10 * time.Second
	// drainTick is between two looks, of which two must find the ifb empty: a packet
	// may be on its way there for as long as a classifier runs, and on its way from
	// there for as long as a tasklet waits.
	drainTick = 25 * time.Millisecond
)

// clearDetour takes the filter away, and leaves the rest to the background.
func (e *Engine) clearDetour(c *conn, d *device, p target.Place) error {
	x, err := e.known(c, d, p)
	if x == nil || err != nil || !x.cleared.IsZero() {
		return err
	}
	if x.tcx { // whether the device is there or not
		x.settle()
	}
	l, err := c.subject(p)
	if err == nil {
		if s, err := c.Root(x.ifb.device()); err == nil && s.Ours() {
			x.root.tally.changed(s)
		}
		err = c.release(x, l)
	}
	if absent(err) != nil {
		return err
	}
	failAt("netem.filter.gone")
	x.cleared, x.filter = time.Now(), filter{}
	x.life++
	d.detours[p.Key()] = x
	life := x.life
	e.drains.Go(func() { e.drain(d, x, life) })
	return nil
}

// drain waits until the ifb of x is empty, and takes away what is left.
func (e *Engine) drain(d *device, x *detour, life int) {
	var last uint64
	for {
		time.Sleep(drainTick)
		d.mu.Lock()
		ended := x.life != life || e.drained(d, x, &last)
		e.forget(key{x.at.Namespace, x.at.Index}, d)
		d.mu.Unlock()
		if ended {
			return
		}
	}
}

// drained looks whether the ifb of x is empty, where last had passed it at the look
// before, and if so, or when it has had its time, takes it away.
func (e *Engine) drained(d *device, x *detour, last *uint64) bool {
	over := time.Since(x.cleared) > drainLimit
	c, err := e.connect(x.at)
	if err == nil {
		defer func() { _ = c.Close() }()
		var waiting, passed uint64
		waiting, passed, err = c.waiting(x.ifb)
		if err == nil && !over && (waiting > 0 || passed != *last) {
			*last = passed
			return false
		}
		if waiting > 0 {
			e.log.Warn("netem: packets of a cleared fault were dropped", "place", x.at.String(), "packets", waiting, "after", drainLimit)
		}
		if absent(err) == nil {
			err = e.dismantle(c, x.ifb)
		}
	}
	switch {
	case absent(err) == nil: // with its namespace, at the latest
	case !over:
		return false
	default:
		e.log.Error("netem: a cleared fault left its ifb", "place", x.at.String(), "ifb", x.ifb.name, "err", err)
	}
	if d.detours[x.at.Key()] == x {
		delete(d.detours, x.at.Key())
	}
	return true
}

// waiting is how many packets are in an ifb, at least, and how many it has passed on.
func (c *conn) waiting(l link) (waiting, passed uint64, err error) {
	s, err := c.Root(l.device())
	if err != nil {
		return 0, 0, err
	}
	now, err := c.link(l.name, l.index)
	if err != nil {
		return 0, 0, err
	}
	// What it received left the queue, what it sent is back on its way.
	return uint64(s.Stats.Queued) + now.received - min(now.sent, now.received), now.sent, nil
}

// dismantle takes away an ifb whose filter is gone, and before it the clsact, if that
// is ours and nothing else needs it. The ifb goes last, since its record says what is
// left to do; but for its gate, which what it sends needs.
func (e *Engine) dismantle(c *conn, l link) error {
	now, err := c.link(l.name, l.index)
	if err != nil {
		return absent(err)
	}
	r, ok := parseRecord(now.alias)
	if !ok || !e.made(now) || now.name != l.name {
		return nil // another device has its index
	}
	on, err := c.link("device of "+l.name, r.device)
	switch {
	case absent(err) != nil:
		return err
	case err != nil || r.tcx:
		failAt("netem.clsact.gone")
		err = c.deleteLink(now)
	default:
		err = c.leave(on, now)
	}
	if err != nil {
		return err
	}
	failAt("netem.ifb.gone")
	if now.kind != macvlanKind {
		return nil
	}
	gate, err := c.link("gate of "+now.name, now.lower)
	if err == nil {
		err = e.discard(c, gate)
	}
	failAt("netem.gate.gone")
	return absent(err)
}

// discard deletes a device of ours, whatever comes there. One that is gone, or became
// another one, is no error.
func (e *Engine) discard(c *conn, l link) error {
	if l.index == 0 {
		return nil
	}
	now, err := c.link(l.name, l.index)
	if err != nil || now.name != l.name || !e.made(now) {
		return absent(err)
	}
	return c.deleteLink(now)
}

// leave deletes l, an ifb behind the clsact of a device, and before it the clsact, where
// the record of l calls that ours; if there is another ifb on the same device, that is
// handed over to it instead. All of it is done alone, or two agents hand the clsact over
// to each other's ifb when it has looked at its record for the last time.
func (c *conn) leave(on, l link) error {
	return c.alone(on, func() error {
		all, err := c.links()
		if err != nil {
			return err
		}
		heir := link{}
		for _, other := range all {
			r, ok := parseRecord(other.alias)
			switch {
			case !ok || other.kind != ifbKind || r.tcx || r.device != on.index:
			case other.index == l.index:
				l = other
			case heir.index == 0:
				heir = other
			}
		}
		if r, _ := parseRecord(l.alias); r.madeClsact {
			if heir.index != 0 {
				err = c.record(heir, true)
				failAt("netem.clsact.handed")
			} else {
				err = c.vacate(on)
			}
			if absent(err) != nil {
				return err
			}
		}
		failAt("netem.clsact.gone")
		return c.deleteLink(l)
	})
}
