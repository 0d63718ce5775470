package netem

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
)

// A gate is the way back from an egress fault that has no clsact. The netem is the root
// of a macvlan, which hands over what it sends as it is to the device below, the gate:
// an ifb of ours, whose egress hook sends it on to the egress of the faulty device. So
// a packet keeps its socket, route, mark, priority and segments, which through a veth
// pair it would lose. The gate's program is in a clsact, and not a tcx link, so that
// packets that wait find back without this process.

// gatekeeper assembles the program at a gate's egress.
func gatekeeper(device int) asm.Instructions {
	var ins asm.Instructions
	for i, v := range []int32{passMagic1, passMagic2, int32(device)} {
		ins = append(ins, asm.Mov.Imm(asm.R2, v), asm.StoreMem(asm.R1, skbScratch+4*int16(i), asm.R2, asm.Word))
	}
	return append(ins, asm.Mov.Imm(asm.R1, int32(device)), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return())
}

// gate reports whether l, of ours, is a gate.
func (r record) gate(l link) bool { return r.tcx && r.hook == target.Egress && l.kind == ifbKind }

// makeGate makes the gate of x, up and with its program.
func (e *Engine) makeGate(c *conn, x *detour, r record, made *undo) (link, error) {
	l, err := c.createFree(e.state, x.at, tries, c.createIFB)
	if err != nil {
		return link{}, err
	}
	made.push(func() error { return c.deleteLink(l) })
	failAt("netem.gate.made")
	if err := c.setAlias(l, r.String()); err != nil {
		return link{}, err
	}
	failAt("netem.gate.alias")
	prog, id, err := loadProgram("netemd_gate", gatekeeper(x.at.Index))
	if err != nil {
		return link{}, fmt.Errorf("netem: %s: %w", x.at, err)
	}
	defer func() { _ = prog.Close() }()
	err = c.addClsact(l)
	failAt("netem.gate.clsact")
	if err == nil {
		err = c.addFilter(l, filter{
			parent: hookEgress, preference: 1, protocol: unix.ETH_P_ALL, kind: "bpf", handle: filterHandle, name: recordVersion + " gate",
		}, prog.FD())
	}
	failAt("netem.gate.filter")
	if err == nil {
		err = c.setUp(l)
	}
	if err != nil {
		return link{}, err
	}
	failAt("netem.gate.up")
	x.gatekeeper = id
	return l, nil
}

// gateWhole reports whether the gate of x is as it was made.
func (e *Engine) gateWhole(c *conn, x *detour) (bool, error) {
	now, err := c.link(x.gate.name, x.gate.index)
	if err != nil || !e.made(now) || !now.up() {
		return false, absent(err)
	}
	all, err := c.filters(now, target.Egress)
	if err != nil {
		return false, absent(err)
	}
	all = slices.DeleteFunc(all, func(f filter) bool { return f.handle == 0 })
	return len(all) == 1 && all[0].kind == "bpf" && (x.gatekeeper == 0 || all[0].program == x.gatekeeper), nil
}

// createFree makes a device for p with the first of its names, from the one with that
// number on, that nobody has.
func (c *conn) createFree(state string, p target.Place, from int, create func(string) (link, error)) (l link, err error) {
	err = fs.ErrExist
	for try := 0; errors.Is(err, fs.ErrExist) && try < tries; try++ {
		l, err = create(ifbName(state, p, from+try))
	}
	return l, err
}
