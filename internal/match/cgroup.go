package match

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"netemd/internal/target"
)

// maxLevel bounds how deep a cgroup stands: what the kernel's helper is asked for is an int,
// and nobody nests that deep.
const maxLevel = 255

// layout is where the running kernel keeps what leads from a socket to the ids of its
// cgroup and of those above it, in bytes from the start of each struct.
type layout struct {
	group     int32 // sock.sk_cgrp_data.cgroup
	level     int32 // cgroup.level
	ancestors int32 // cgroup.ancestors, pointers by level, from the root to itself
	node      int32 // cgroup.kn
	id        int32 // kernfs_node.id
}

// looksUp reports whether m selects by the sockets that packets are for.
func looksUp(m target.Match) bool {
	return slices.ContainsFunc(slices.Concat(m.Include, m.Exclude), func(f target.Flow) bool { return !f.DestinationCgroup.Any() })
}

// sentBy reports whether the packet was sent by a socket of g; nobody sends what is not IP.
func (c *content) sentBy(g target.Cgroup) bool {
	return g.Any() || c.source.IsValid() && memberOf(c.ends.Sender, g)
}

// isFor reports whether the packet is for a socket of g, which its ports tell.
func (c *content) isFor(g target.Cgroup) bool {
	return g.Any() || (c.protocol == protoTCP || c.protocol == protoUDP) && c.destinationPort != noPorts && memberOf(c.ends.Receiver, g)
}

func memberOf(levels []uint64, g target.Cgroup) bool {
	return g.Level < len(levels) && levels[g.Level] == g.ID
}

// sender compares the cgroup of the packet's socket (bpf_skb_ancestor_cgroup_id, Linux
// 4.19): 0 where it has none, or one that stands higher.
func (p *program) sender(f target.Flow, miss string) {
	if f.SourceCgroup.Any() {
		return
	}
	p.Add(
		asm.Mov.Reg(asm.R1, Skb),
		asm.Mov.Imm(asm.R2, int32(f.SourceCgroup.Level)),
		asm.FnSkbAncestorCgroupId.Call(),
		asm.LoadImm(asm.R1, int64(f.SourceCgroup.ID), asm.DWord),
		asm.JNE.Reg(asm.R0, asm.R1, miss),
	)
}

// Where receiver keeps what it works with: in what is no longer needed of the headers.
const (
	stackSocket = stackHeader // the socket, as the verifier follows it
	stackRead   = stackExt    // what was read last
	stackLevel  = -4          // behind the header and the ports
)

// currentNetns is BPF_F_CURRENT_NETNS (linux/bpf.h): the device's own.
const currentNetns = -1

// receiver compares the cgroup of the socket that the packet is for, which is looked up as
// the kernel will. At ingress a packet has no socket yet, and no helper of these programs
// says a socket's cgroup, so that it is read from the kernel's memory. The lookup gives the
// listener for one that is being opened, and none for one in TIME_WAIT, which no process
// has any more.
func (p *program) receiver(b *branch, f target.Flow, source int16, miss string) {
	g := f.DestinationCgroup
	if g.Any() {
		return
	}
	addresses := int16(8)
	if b.family == 6 {
		addresses = 32
	}
	ports := source + addresses
	label := func(what string) string { return miss + what }
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, stackDestinationPort, asm.Word),
		asm.JGT.Imm(asm.R1, 1<<16-1, miss),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.StoreMem(asm.RFP, ports+2, asm.R1, asm.Half),
		asm.LoadMem(asm.R1, asm.RFP, stackSourcePort, asm.Word),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.StoreMem(asm.RFP, ports, asm.R1, asm.Half),
		// bpf_sock_tuple: both addresses, both ports, as they lie in the packet
		asm.Mov.Reg(asm.R1, Skb),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(source)),
		asm.Mov.Imm(asm.R3, int32(addresses)+4),
		asm.Mov.Imm(asm.R4, currentNetns),
		asm.Mov.Imm(asm.R5, 0),
		asm.LoadMem(asm.R0, asm.RFP, stackProtocol, asm.Word),
		asm.JEq.Imm(asm.R0, protoTCP, label("tcp")),
		asm.JNE.Imm(asm.R0, protoUDP, miss),
		asm.FnSkLookupUdp.Call(),
		asm.Ja.Label(label("found")),
	)
	p.At(label("tcp"))
	p.Add(asm.FnSkLookupTcp.Call())
	p.At(label("found"))
	p.Add(
		asm.JEq.Imm(asm.R0, 0, miss),
		asm.StoreMem(asm.RFP, stackSocket, asm.R0, asm.DWord),
		// Its address as a plain number, with which one may calculate.
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, stackSocket),
	)
	p.kernel(stackRead, 8)
	p.follow(p.sockets.group)
	p.Add(asm.LoadMem(asm.R3, asm.RFP, stackRead, asm.DWord), asm.Add.Imm(asm.R3, p.sockets.level))
	p.kernel(stackLevel, 4)
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, stackLevel, asm.Word),
		asm.JLT.Imm(asm.R1, int32(g.Level), label("above")), // nothing of it lies there
	)
	p.follow(p.sockets.ancestors + 8*int32(g.Level))
	p.follow(p.sockets.node)
	p.follow(p.sockets.id)
	p.Add(asm.Ja.Label(label("read")))
	p.At(label("above"))
	p.Add(asm.Mov.Imm(asm.R1, 0), asm.StoreMem(asm.RFP, stackRead, asm.R1, asm.DWord))
	p.At(label("read"))
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, stackSocket, asm.DWord),
		asm.FnSkRelease.Call(),
		asm.LoadMem(asm.R1, asm.RFP, stackRead, asm.DWord),
		asm.LoadImm(asm.R2, int64(g.ID), asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R2, miss),
	)
}

// follow reads 8 bytes at an offset from where the last ones point to. What cannot be read
// is zero, from where on nothing can.
func (p *program) follow(offset int32) {
	p.Add(asm.LoadMem(asm.R3, asm.RFP, stackRead, asm.DWord), asm.Add.Imm(asm.R3, offset))
	p.kernel(stackRead, 8)
}

// kernel reads n bytes of the kernel's memory at the address in R3 to the stack.
func (p *program) kernel(stack, n int32) {
	p.Add(
		asm.Mov.Reg(asm.R1, asm.RFP), asm.Add.Imm(asm.R1, stack),
		asm.Mov.Imm(asm.R2, n),
		asm.FnProbeReadKernel.Call(),
	)
}
