package netem

import (
	"errors"
	"fmt"
	"io/fs"

	"netemd/qdisc"
)

// whole reports whether the ifb of x and its root are as they were made, and the
// root's state.
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
	if err != nil {
		return s, false, absent(err)
	}
	return s, s.Ours(), nil
}

// made reports whether l is an ifb of an agent with this engine's mark.
func (e *Engine) made(l link) bool {
	r, ok := parseRecord(l.alias)
	return ok && l.kind == ifbKind && r.state == e.state
}

// tries is how many names are tried for an ifb.
const tries = 8

// makeIFB makes the ifb of x, with its record and its root.
func (e *Engine) makeIFB(c *conn, x *detour, door entrance, n qdisc.Netem, made *undo) error {
	if err := loadIFB(); err != nil {
		return fmt.Errorf("netem: %s: %w", x.at, err)
	}
	var l link
	err := fs.ErrExist
	for try := 0; errors.Is(err, fs.ErrExist) && try < tries; try++ {
		l, err = c.createIFB(ifbName(e.state, x.at, try))
	}
	if err != nil {
		return err
	}
	made.push(func() error { return c.deleteLink(l) })
	step("ifb")
	r := record{state: e.state, device: x.at.Index, hook: x.at.Hook, madeClsact: x.madeClsact || door.kind == ""}
	if err := c.setAlias(l, r.String()); err != nil {
		return err
	}
	step("alias")
	if err := c.AddRoot(l.device(), n); err != nil {
		return err
	}
	step("root")
	if err := verify(c, l.device(), x.at, n); err != nil {
		return err
	}
	if err := c.setUp(l); err != nil {
		return err
	}
	step("up")
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
	err := c.addClsact(l)
	if errors.Is(err, fs.ErrExist) { // somebody was faster
		x.madeClsact = false
		return c.record(x.ifb, false)
	}
	if err != nil {
		return err
	}
	made.push(func() error { return c.vacate(l) })
	x.notes = append(x.notes, fmt.Sprintf("%s had no clsact: while the kernel adds one, and takes it away in the end, the device sends nothing for a moment (an RCU grace period), and what it was to send is lost", l.name))
	step("clsact")
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
