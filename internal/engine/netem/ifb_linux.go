package netem

import (
	"errors"
	"fmt"
	"io/fs"

	"netemd/internal/target"
	"netemd/qdisc"
)

// whole reports whether the ifb of x, its root and its gate are as they were made, and
// the root's state.
func (e *Engine) whole(c *conn, x *detour) (qdisc.State, bool, error) {
	if x.ifb.index == 0 {
		return qdisc.State{}, false, nil
	}
	now, err := c.link(x.ifb.name, x.ifb.index)
	if err != nil || now.name != x.ifb.name || !e.made(now) {
		return qdisc.State{}, false, absent(err)
	}
	r, _ := parseRecord(now.alias)
	x.madeClsact = r.madeClsact
	if !now.up() {
		return qdisc.State{}, false, nil
	}
	s, err := c.Root(x.ifb.device())
	if err != nil || !s.Ours() {
		return s, false, absent(err)
	}
	if x.tcx && x.at.Hook == target.Egress {
		whole, err := e.gateWhole(c, x)
		return s, whole, err
	}
	return s, true, nil
}

// made reports whether l is a device of an agent with this engine's mark.
func (e *Engine) made(l link) bool {
	r, ok := parseRecord(l.alias)
	return ok && l.ourKind() && r.state == e.state
}

// tries is how many names are tried for an ifb.
const tries = 8

// makeIFB makes the ifb of x, with its record and its root; where the way back needs a
// gate, that and a macvlan in the ifb's stead.
func (e *Engine) makeIFB(c *conn, x *detour, door entrance, n qdisc.Netem, made *undo) error {
	if err := loadIFB(); err != nil {
		return fmt.Errorf("netem: %s: %w", x.at, err)
	}
	r := record{state: e.state, device: x.at.Index, hook: x.at.Hook, tcx: x.tcx}
	r.madeClsact = !x.tcx && (x.madeClsact || door.kind == "")
	create := c.createIFB
	x.gate, x.gatekeeper = link{}, 0
	if x.tcx && x.at.Hook == target.Egress {
		gate, err := e.makeGate(c, x, r, made)
		if err != nil {
			return err
		}
		x.gate = gate
		create = func(name string) (link, error) { return c.createMacvlan(name, gate) }
	}
	l, err := c.createFree(e.state, x.at, 0, create)
	if err != nil {
		return err
	}
	made.push(func() error { return c.deleteLink(l) })
	failAt("netem.ifb.made")
	if err := c.setAlias(l, r.String()); err != nil {
		return err
	}
	failAt("netem.ifb.alias")
	if err := c.AddRoot(l.device(), n); err != nil {
		return err
	}
	failAt("netem.ifb.root")
	if err := verify(c, l.device(), x.at, n); err != nil {
		return err
	}
	if err := c.setUp(l); err != nil {
		return err
	}
	failAt("netem.ifb.up")
	x.ifb, x.madeClsact = l, r.madeClsact
	x.root = root{asked: n, table: tableOf(n), tally: tally{sum: x.root.tally.sum}}
	return nil
}

// open adds a clsact to the device where there is none, once the ifb's record says
// so.
func (c *conn) open(x *detour, l link, door entrance, made *undo) error {
	if door.kind != "" {
		return nil
	}
	if err := c.record(x.ifb, true); err != nil {
		return err
	}
	x.madeClsact = true
	failAt("netem.clsact.recorded")
	err := c.addClsact(l)
	if errors.Is(err, fs.ErrExist) { // somebody was faster
		x.madeClsact = false
		return c.record(x.ifb, false)
	}
	if err != nil {
		return err
	}
	made.push(func() error { return c.alone(l, func() error { return c.vacate(l) }) })
	x.notes = append(x.notes, fmt.Sprintf("%s had no clsact: while the kernel adds one, and takes it away in the end, the device sends nothing for a moment (an RCU grace period), and what it was to send is lost", l.name))
	failAt("netem.clsact.added")
	return nil
}

// record writes in the alias of an ifb of ours whether the clsact is ours.
func (c *conn) record(l link, madeClsact bool) error {
	now, err := c.link(l.name, l.index)
	if err != nil {
		return err
	}
	r, ok := parseRecord(now.alias)
	if !ok || r.madeClsact == madeClsact {
		return nil
	}
	r.madeClsact = madeClsact
	return c.setAlias(l, r.String())
}
