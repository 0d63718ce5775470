package netem

import (
	"errors"
	"fmt"
	"slices"

	"netemd/internal/match"
	"netemd/internal/target"
)

// Try does once what a fault on a device of somebody else's needs, each way that this
// kernel may take: by tcx, where it has that, a gate, a macvlan over it and a program at
// the loopback's egress that sends a flow there; by a clsact an ifb, and a filter that
// sends one there by mirred. One is enough. It says what it did, and leaves devices of
// ours: netns is the descriptor of a scratch namespace, which is the caller's thread's.
// That they can carry a netem is another question. The error is errors.ErrUnsupported
// where the kernel lacks something.
func Try(netns int) (detail string, err error) {
	if err := loadIFB(); err != nil {
		return "", err
	}
	r, err := dialRTNL(netns, "scratch")
	if err != nil {
		return "", err
	}
	c := &conn{rtnl: r}
	defer func() { err = errors.Join(err, r.Close()) }()
	lo, err := c.linkByName("lo")
	if err != nil {
		return "", err
	}
	const done = " of lo sends a flow to a device of ours in a scratch namespace"
	byClsact := c.tryClsact(lo)
	if !haveTCX() {
		return "a filter at a clsact" + done, byClsact
	}
	byTCX := c.tryTCX(lo)
	switch {
	case byTCX == nil && byClsact == nil:
		return "a tcx program, and a filter where a clsact stands," + done, nil
	case byTCX == nil:
		return fmt.Sprintf("a tcx program%s; where a clsact stands none can: %v", done, byClsact), nil
	case byClsact == nil:
		return fmt.Sprintf("a filter at a clsact%s; a tcx program, which loses no packet, cannot: %v", done, byTCX), nil
	}
	return "", errors.Join(byTCX, byClsact)
}

// tryName begins the names of what a try makes.
const tryName = namePrefix + "try"

// tryHeader is the loopback's.
const tryHeader = 14

var tryMatch = target.Match{Include: []target.Flow{{Protocol: 17}}}

// tryTCX is Try's way by tcx.
func (c *conn) tryTCX(lo link) error {
	x := &detour{at: target.Place{Device: lo.name, Index: lo.index, Hook: target.Egress, Match: tryMatch}, tcx: true}
	e := New(Config{State: tryName})
	gate, err := e.makeGate(c, x, record{state: e.state, device: lo.index, hook: target.Egress, tcx: true}, &undo{})
	if err != nil {
		return err
	}
	l, err := c.createMacvlan(tryName, gate)
	if err != nil {
		return err
	}
	count, err := newCount()
	if err != nil {
		return err
	}
	n := entry{count: count}
	ins, err := selector(tryMatch, tryHeader, target.Egress, lo.index, l.index, count)
	if err == nil {
		n.program, n.number, err = loadProgram(match.SelectProgram, ins)
	}
	if err == nil {
		if err = n.attach(lo, target.Egress); err != nil {
			err = errors.Join(err, n.program.Close())
		}
	}
	if err != nil {
		return errors.Join(err, count.Close())
	}
	return errors.Join(n.attached(lo), n.detach())
}

// tryClsact is Try's way by a clsact.
func (c *conn) tryClsact(lo link) error {
	ifb, err := c.createIFB(tryName + "i")
	if err != nil {
		return err
	}
	if err := c.addClsact(lo); err != nil {
		return err
	}
	prog, _, err := load(tryMatch, tryHeader)
	if err != nil {
		return err
	}
	defer func() { _ = prog.Close() }()
	f, _ := position(nil, target.Egress)
	f.name, f.cookie, f.to = filterText("try", ifb.name), ifb.name, ifb.index
	if err := c.addFilter(lo, f, prog.FD()); err != nil {
		return err
	}
	all, err := c.filters(lo, target.Egress)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(all, func(f filter) bool { return f.redirects && f.to == ifb.index }) {
		return fmt.Errorf("filter read: lo: the filter that was added does not redirect")
	}
	return nil
}
