package evidence

import (
	"context"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/namespaces"
)

// segment is a kind of TCP segment that a test drops.
type segment int

const (
	syn segment = iota
	synACK
	data
)

// dropFirst drops the first count segments of a kind that leave by the device, as
// if they were lost on the way: TCP is not told. It uses clsact, which all kernels
// have that we know, and a redirect to a device that does not exist.
func dropFirst(t *testing.T, namespace, device string, kind segment, count int32) {
	t.Helper()
	seen, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer seen.Close()
	load := func(offset asm.Register, add int32, size int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Reg(asm.R2, offset), asm.Add.Imm(asm.R2, add),
			asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -8), asm.Mov.Imm(asm.R4, size),
			asm.FnSkbLoadBytes.Call(), asm.JNE.Imm(asm.R0, 0, "pass"),
		}
	}
	const ip, ip6 = 0x0008, 0xdd86 // ETH_P_IP and ETH_P_IPV6 as they lie in memory
	ins := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, 16, asm.Word), // protocol
		asm.Mov.Imm(asm.R9, 34), asm.Mov.Imm(asm.R8, 2), asm.Mov.Imm(asm.R7, 23),
		asm.JEq.Imm(asm.R2, ip, "parse"),
		asm.JNE.Imm(asm.R2, ip6, "pass"),
		asm.Mov.Imm(asm.R9, 54), asm.Mov.Imm(asm.R8, 4), asm.Mov.Imm(asm.R7, 20),
	}
	// R9: offset of the TCP header; R8: offset of the length in the IP header; R7: of
	// the protocol
	parse := load(asm.R7, 0, 1)
	parse[0] = parse[0].WithSymbol("parse")
	ins = append(ins, parse...)
	ins = append(ins, asm.LoadMem(asm.R2, asm.RFP, -8, asm.Byte), asm.JNE.Imm(asm.R2, unix.IPPROTO_TCP, "pass"))
	ins = append(ins, load(asm.R8, 14, 2)...)
	ins = append(ins,
		asm.LoadMem(asm.R7, asm.RFP, -8, asm.Half), asm.HostTo(asm.BE, asm.R7, asm.Half),
		asm.JEq.Imm(asm.R8, 4, "six"), asm.Sub.Imm(asm.R7, 20))
	tcp := load(asm.R9, 12, 2)
	tcp[0] = tcp[0].WithSymbol("six")
	ins = append(ins, tcp...)
	ins = append(ins,
		asm.LoadMem(asm.R2, asm.RFP, -8, asm.Byte), asm.RSh.Imm(asm.R2, 4), asm.LSh.Imm(asm.R2, 2), asm.Sub.Reg(asm.R7, asm.R2), // R7: payload
		asm.LoadMem(asm.R3, asm.RFP, -7, asm.Byte), asm.And.Imm(asm.R3, 0x12)) // R3: SYN and ACK
	switch kind {
	case syn:
		ins = append(ins, asm.JNE.Imm(asm.R3, 0x02, "pass"))
	case synACK:
		ins = append(ins, asm.JNE.Imm(asm.R3, 0x12, "pass"))
	case data:
		ins = append(ins, asm.JEq.Imm(asm.R7, 0, "pass"))
	}
	ins = append(ins,
		asm.LoadMapValue(asm.R7, seen.FD(), 0), asm.LoadMem(asm.R8, asm.R7, 0, asm.DWord),
		asm.JGE.Imm(asm.R8, count, "pass"), asm.Mov.Imm(asm.R1, 1), asm.StoreXAdd(asm.R7, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, 0x7ffffff0), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: ins})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	err = namespaces.Do(context.Background(), namespace, func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		q := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
		if err := netlink.QdiscAdd(q); err != nil {
			return fmt.Errorf("clsact: %w", err)
		}
		f := &netlink.BpfFilter{Fd: p.FD(), Name: "drop", DirectAction: true, FilterAttrs: netlink.FilterAttrs{
			LinkIndex: l.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL}}
		if err := netlink.FilterAdd(f); err != nil {
			return fmt.Errorf("cls_bpf: %w", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
