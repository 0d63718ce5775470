package evidence

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// neighbourPoints are the tracepoints behind which an entry of the neighbour tables (ARP,
// NDP) may have another state (include/trace/events/neigh.h): a packet needed it, its timer
// ran out, an answer came. The entry is the first argument of each.
var neighbourPoints = []string{"neigh_event_send_done", "neigh_timer_handler", "neigh_update_done"}

// neighbourLayout is where the running kernel keeps what a record needs of an entry, in
// bytes.
type neighbourLayout struct {
	state, key, table, device uint32 // in struct neighbour
	family                    uint32 // in struct neigh_table
	net                       uint32 // in struct net_device
}

func kernelNeighbourLayout() (l neighbourLayout, err error) {
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		return l, fmt.Errorf("kernel types (BTF): %w", err)
	}
	for _, f := range []struct {
		into        *uint32
		typ, member string
	}{
		{&l.state, "neighbour", "nud_state"},
		{&l.key, "neighbour", "primary_key"},
		{&l.table, "neighbour", "tbl"},
		{&l.device, "neighbour", "dev"},
		{&l.family, "neigh_table", "family"},
		{&l.net, "net_device", "nd_net"},
	} {
		at, err := memberOffset(spec, f.typ, f.member)
		if err != nil {
			return l, err
		}
		*f.into = uint32(at.Bytes())
	}
	return l, nil
}

// neighbourProgram assembles what runs at a tracepoint of the neighbour tables: it writes
// the entry's address and its state.
//
// Registers: R6 the entry, R8 what it points to.
func neighbourProgram(l layout, n neighbourLayout, cookies []uint64, ring, lost *ebpf.Map) asm.Instructions {
	ins := asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.DWord),
		asm.Mov.Imm(asm.R1, 0),
	}
	for at := int16(scratch); at < 0; at += 8 {
		ins = append(ins, asm.StoreMem(asm.RFP, at, asm.R1, asm.DWord))
	}
	follow := func(base asm.Register, offset uint32) {
		ins = append(ins, read(scratch, base, offset, 8)...)
		ins = append(ins, asm.LoadMem(asm.R8, asm.RFP, scratch, asm.DWord))
	}
	follow(asm.R6, n.device)
	follow(asm.R8, n.net)
	ins = append(ins, wanted(l, cookies)...)
	follow(asm.R6, n.table)
	ins = append(ins, read(scratch, asm.R8, n.family, 4)...)
	ins = append(ins,
		asm.LoadMem(asm.R8, asm.RFP, scratch, asm.Word),
		asm.StoreMem(asm.RFP, frame+recFamily, asm.R8, asm.Half),
		asm.StoreImm(asm.RFP, frame+recKind, kindNeighbour, asm.Byte))
	ins = append(ins, read(frame+recState, asm.R6, n.state, 1)...)
	ins = append(ins, asm.JNE.Imm(asm.R8, familyInet6, "ipv4"))
	ins = append(ins, read(frame+recRemote, asm.R6, n.key, 16)...)
	ins = append(ins, asm.Ja.Label("write"))
	v4 := read(frame+recRemote, asm.R6, n.key, 4)
	v4[0] = v4[0].WithSymbol("ipv4")
	ins = append(ins, v4...)
	return append(ins, emit(ring, lost)...)
}

// watchNeighbours attaches to the tracepoints; without them the rest works all the same.
func (c *Collector) watchNeighbours(l layout, cookies []uint64) error {
	n, err := kernelNeighbourLayout()
	if err != nil {
		return err
	}
	for _, name := range neighbourPoints {
		if err := c.attach(name, neighbourProgram(l, n, cookies, c.ring, c.lost)); err != nil {
			return err
		}
	}
	return nil
}
