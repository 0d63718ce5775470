package match

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf/asm"

	"netemd/internal/ether"
	"netemd/internal/target"
)

// What a Classifier returns: a match with the filter's own class, so that its actions
// are run, and none, so that the next filter is asked (cls_bpf_classify in
// net/sched/cls_bpf.c).
const (
	matched   = -1
	unmatched = 0
)

// Classifier is a program of type BPF_PROG_TYPE_SCHED_CLS for cls_bpf without direct
// action: the filter's actions are run on what m selects, and the next filter is asked
// about the rest. header is the length of the device's link-layer header: 14 for
// Ethernet, 0 for none. The error is Validate's.
func Classifier(m target.Match, header int) (asm.Instructions, error) {
	var s Sequence
	s.Add(asm.Mov.Reg(Skb, asm.R1))
	if err := s.Select(m, header, "unmatched"); err != nil {
		return nil, err
	}
	s.Add(asm.Mov.Imm(asm.R0, matched), asm.Return())
	// The verifier refuses what is never reached.
	if slices.ContainsFunc(s.ins, func(i asm.Instruction) bool { return i.Reference() == "unmatched" }) {
		s.At("unmatched")
		s.Add(asm.Mov.Imm(asm.R0, unmatched), asm.Return())
	}
	return s.ins, nil
}

// Stack is how many bytes at the top of the stack Select uses, so that what must
// outlive it lies below.
const Stack = 88

const (
	stackHeader = -48 // IPv4 or IPv6 header; 8 bytes are free behind it, for receiver
	stackExt    = -56 // 8 bytes of an IPv6 extension header; a tag; both ports

	// What flows are compared with, in 32 bits each. The verifier follows what is
	// known of a number in a register or in 8 aligned bytes of the stack, and would
	// look at every flow once for each outcome of the flows before. Of these it knows
	// nothing, so that programs take it a time that grows with their length only.
	stackSourcePort      = -60
	stackDestinationPort = -68
	stackProtocol        = -76
	stackFlags           = -84
)

// skbProtocol is the offset in struct __sk_buff (linux/bpf.h).
const skbProtocol = 16

// rOffset is where the next header begins.
const rOffset = asm.R9

// Select appends instructions that jump to pass unless m selects the packet, and go on
// behind otherwise. It expects the context in Skb, uses R0 to R5, R9 and the top Stack
// bytes of the stack, and labels that begin with "match.". The error is Validate's.
func (s *Sequence) Select(m target.Match, header int, pass string) error {
	if err := Validate(m); err != nil {
		return fmt.Errorf("match: %w", err)
	}
	p := program{Sequence: s, pass: pass, rest: pass, control: m.Control}
	if looksUp(m) {
		var err error
		if p.sockets, err = socketLayout(); err != nil {
			return fmt.Errorf("match: which packets go to the processes of a cgroup: %w", err)
		}
	}
	if everything(m) {
		p.rest = selected
	}
	m.Include, m.Exclude = normal(m.Include), normal(m.Exclude)
	v4, v6 := p.plan(m, 4), p.plan(m, 6)

	s.Add(
		asm.LoadMem(asm.R1, Skb, skbProtocol, asm.Word),
		asm.Mov.Imm(rOffset, int32(header)),
	)
	if header >= 14 {
		p.untag()
	}
	if !p.control {
		s.Add(asm.JEq.Imm(asm.R1, htons(ether.ARP), pass))
	}
	for _, f := range []*branch{v6, v4} {
		if f.parse {
			s.Add(asm.JEq.Imm(asm.R1, htons(f.kind), f.label("")))
		}
	}
	s.Add(asm.Ja.Label(p.rest))
	if v6.parse {
		p.readIPv6(v6)
	}
	if v4.parse {
		p.readIPv4(v4)
	}
	s.At(selected)
	return nil
}

// selected is the label behind everything.
const selected = "match.selected"

// program is a Select at work.
type program struct {
	*Sequence
	// pass is where to go with what is not selected, rest with what belongs to no flow.
	pass, rest string
	control    bool
	// sockets is where the kernel has the cgroup of a socket, if a flow needs it.
	sockets layout
}

// branch is what is done with the packets of one family. There is one for each, since
// either's packets need not be compared with the other's flows.
type branch struct {
	family           int
	kind             uint16
	include, exclude []target.Flow
	// end is where to go with what belongs to none of them.
	end string
	// parse says that the packet must be looked at, flows that there are flows to
	// compare it with.
	parse, flows bool
	// flags says that some of them select by TCP flags.
	flags bool
}

func (b *branch) label(what string) string { return fmt.Sprintf("match.v%d%s", b.family, what) }

func (p *program) plan(m target.Match, family int) *branch {
	b := &branch{family: family, kind: ether.IPv4, end: p.rest}
	b.include, b.exclude = ofFamily(m.Include, family), ofFamily(m.Exclude, family)
	// Flows that take all of the family are no comparison, but an end.
	switch {
	case slices.ContainsFunc(b.exclude, whole):
		b.include, b.exclude, b.end = nil, nil, p.pass
	case p.rest == selected || slices.ContainsFunc(b.include, whole):
		b.include, b.end = nil, selected
	case len(b.include) == 0:
		b.exclude = nil
	}
	b.flows = len(b.include)+len(b.exclude) > 0
	b.flags = slices.ContainsFunc(b.include, flagged) || slices.ContainsFunc(b.exclude, flagged)
	b.parse = b.flows || b.end != p.rest
	if family == 6 {
		b.kind = ether.IPv6
		b.parse = b.parse || b.end == selected && !p.control // neighbour discovery
	}
	return b
}

// untag walks over the tags in the data. EtherTypes are in R1, as they lie in the
// packet.
func (p *program) untag() {
	for i := range ether.Tags {
		tag := fmt.Sprintf("match.tag%d", i)
		p.Add(
			asm.JEq.Imm(asm.R1, htons(ether.VLAN), tag),
			asm.JNE.Imm(asm.R1, htons(ether.VLANAD), "match.untagged"),
		)
		p.At(tag)
		p.Add(asm.Mov.Reg(asm.R2, rOffset))
		p.Load(stackExt, 4, p.rest)
		p.Add(
			asm.LoadMem(asm.R1, asm.RFP, stackExt+2, asm.Half),
			asm.Add.Imm(rOffset, 4),
		)
	}
	p.At("match.untagged")
}

func (p *program) readIPv4(b *branch) {
	p.At(b.label(""))
	p.Add(asm.Mov.Reg(asm.R2, rOffset))
	p.Load(stackHeader, 20, p.rest)
	if !b.flows {
		p.Add(asm.Ja.Label(b.end))
		return
	}
	if b.flags {
		p.Add(asm.StoreImm(asm.RFP, stackFlags, noFlags, asm.Word))
	}
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, stackHeader+6, asm.Half), // flags and fragment offset
		asm.And.Imm(asm.R1, htons(0x1fff)),
		asm.JNE.Imm(asm.R1, 0, b.label("portless")),
		asm.LoadMem(asm.R1, asm.RFP, stackHeader, asm.Byte), // version and header length
		asm.And.Imm(asm.R1, 0x0f),
		asm.LSh.Imm(asm.R1, 2),
		asm.Add.Reg(rOffset, asm.R1),
	)
	p.transport(b, stackHeader+9)
	p.compare(b, stackHeader+12, stackHeader+16)
}

func (p *program) readIPv6(b *branch) {
	const next = stackHeader + 6 // the next header's number, also of extensions
	p.At(b.label(""))
	p.Add(asm.Mov.Reg(asm.R2, rOffset))
	p.Load(stackHeader, 40, p.rest)
	p.Add(asm.Add.Imm(rOffset, 40))
	if !p.control {
		p.Add(
			asm.LoadMem(asm.R1, asm.RFP, next, asm.Byte),
			asm.JNE.Imm(asm.R1, protoICMPv6, b.label("other")),
			asm.Mov.Reg(asm.R2, rOffset),
		)
		p.Load(stackExt, 1, b.label("other"))
		p.Add(
			asm.LoadMem(asm.R1, asm.RFP, stackExt, asm.Byte),
			asm.Sub.Imm(asm.R1, discoverFirst),
			asm.JLE.Imm(asm.R1, discoverLast-discoverFirst, p.pass),
		)
		p.At(b.label("other"))
	}
	if !b.flows {
		p.Add(asm.Ja.Label(b.end))
		return
	}
	if b.flags {
		p.Add(asm.StoreImm(asm.RFP, stackFlags, noFlags, asm.Word))
	}
	for i := range ether.Extensions {
		label := func(what string) string { return b.label(fmt.Sprintf("%s%d", what, i)) }
		p.Add(
			asm.LoadMem(asm.R1, asm.RFP, next, asm.Byte),
			asm.JEq.Imm(asm.R1, protoHopByHop, label("walk")),
			asm.JEq.Imm(asm.R1, protoRouting, label("walk")),
			asm.JEq.Imm(asm.R1, protoDestination, label("walk")),
			asm.JNE.Imm(asm.R1, protoFragment, b.label("walked")),
		)
		p.Add(asm.Mov.Reg(asm.R2, rOffset))
		p.extension(b, next)
		p.Add(
			asm.Add.Imm(rOffset, 8),
			asm.LoadMem(asm.R1, asm.RFP, stackExt+2, asm.Half),
			asm.And.Imm(asm.R1, htons(0xfff8)),
			asm.JNE.Imm(asm.R1, 0, b.label("portless")), // what follows is no header
			asm.Ja.Label(label("next")),
		)
		p.At(label("walk"))
		p.Add(asm.Mov.Reg(asm.R2, rOffset))
		p.extension(b, next)
		p.Add(
			asm.LoadMem(asm.R1, asm.RFP, stackExt+1, asm.Byte), // in 8 bytes, less one
			asm.Add.Imm(asm.R1, 1),
			asm.LSh.Imm(asm.R1, 3),
			asm.Add.Reg(rOffset, asm.R1),
		)
		p.At(label("next"))
	}
	p.At(b.label("walked"))
	p.transport(b, next)
	p.compare(b, stackHeader+8, stackHeader+24)
}

// extension reads an extension header, whose first byte is the number of the one that
// follows.
func (p *program) extension(b *branch, next int16) {
	p.Load(stackExt, 8, b.label("unread"))
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, stackExt, asm.Byte),
		asm.StoreMem(asm.RFP, next, asm.R1, asm.Byte),
	)
}

// tcpFlags reads the flags of what begins at rOffset, a protocol with the number on the
// stack.
func (p *program) tcpFlags(b *branch, protocol int16) {
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, protocol, asm.Byte),
		asm.JNE.Imm(asm.R1, protoTCP, b.label("flagged")),
		asm.Mov.Reg(asm.R2, rOffset),
		asm.Add.Imm(asm.R2, flagsAt),
	)
	p.Load(stackExt, 1, b.label("flagged"))
	p.Add(
		asm.LoadMem(asm.R1, asm.RFP, stackExt, asm.Byte),
		asm.StoreMem(asm.RFP, stackFlags, asm.R1, asm.Word),
	)
	p.At(b.label("flagged"))
}

// transport reads the ports, and if need be the flags, of what begins at rOffset, a protocol with the number on
// the stack, and leaves everything where flows are compared with it.
func (p *program) transport(b *branch, protocol int16) {
	p.Add(asm.LoadMem(asm.R1, asm.RFP, protocol, asm.Byte))
	for _, n := range portProtocols {
		p.Add(asm.JEq.Imm(asm.R1, int32(n), b.label("ports")))
	}
	p.Add(asm.Ja.Label(b.label("portless")))
	p.At(b.label("ports"))
	if b.flags {
		p.tcpFlags(b, protocol)
	}
	p.Add(asm.Mov.Reg(asm.R2, rOffset))
	p.Load(stackExt, 4, b.label("portless"))
	p.Add(
		asm.LoadMem(asm.R2, asm.RFP, stackExt, asm.Half),
		asm.HostTo(asm.BE, asm.R2, asm.Half),
		asm.LoadMem(asm.R3, asm.RFP, stackExt+2, asm.Half),
		asm.HostTo(asm.BE, asm.R3, asm.Half),
		asm.LoadMem(asm.R1, asm.RFP, protocol, asm.Byte),
		asm.Ja.Label(b.label("read")),
	)
	if b.family == 6 {
		p.At(b.label("unread"))
		p.Add(asm.Mov.Imm(asm.R1, unread), asm.Ja.Label(b.label("noports")))
	}
	p.At(b.label("portless"))
	p.Add(asm.LoadMem(asm.R1, asm.RFP, protocol, asm.Byte))
	p.At(b.label("noports"))
	p.Add(asm.Mov.Imm(asm.R2, noPorts), asm.Mov.Imm(asm.R3, noPorts))
	p.At(b.label("read"))
	p.Add(
		asm.StoreMem(asm.RFP, stackProtocol, asm.R1, asm.Word),
		asm.StoreMem(asm.RFP, stackSourcePort, asm.R2, asm.Word),
		asm.StoreMem(asm.RFP, stackDestinationPort, asm.R3, asm.Word),
	)
}

// compare goes through the flows of a family.
func (p *program) compare(b *branch, source, destination int16) {
	each := func(what string, flows []target.Flow, found string) {
		for i, f := range flows {
			miss := b.label(fmt.Sprintf("%s%d", what, i))
			if f.Protocol != 0 {
				p.Add(
					asm.LoadMem(asm.R1, asm.RFP, stackProtocol, asm.Word),
					asm.JNE.Imm(asm.R1, int32(f.Protocol), miss),
				)
			}
			if flagged(f) {
				p.Add(
					asm.LoadMem(asm.R1, asm.RFP, stackFlags, asm.Word),
					asm.And.Imm(asm.R1, int32(f.FlagsSet|f.FlagsClear)|noFlags),
					asm.JNE.Imm(asm.R1, int32(f.FlagsSet), miss),
				)
			}
			p.ports(stackDestinationPort, f.DestinationPorts, miss)
			p.ports(stackSourcePort, f.SourcePorts, miss)
			p.prefix(destination, f.Destination, miss)
			p.prefix(source, f.Source, miss)
			p.sender(f, miss)
			p.receiver(b, f, source, miss)
			p.Add(asm.Ja.Label(found))
			p.At(miss)
		}
	}
	each("exclude", b.exclude, p.pass)
	each("include", b.include, selected)
	p.Add(asm.Ja.Label(b.end))
}

// ports compares as unsigned numbers, and noPorts is the highest.
func (p *program) ports(stack int16, want target.Ports, miss string) {
	if want.Any() {
		return
	}
	p.Add(asm.LoadMem(asm.R1, asm.RFP, stack, asm.Word))
	if want.First == want.Last {
		p.Add(asm.JNE.Imm(asm.R1, int32(want.First), miss))
		return
	}
	p.Add(asm.JLT.Imm(asm.R1, int32(want.First), miss), asm.JGT.Imm(asm.R1, int32(want.Last), miss))
}

// prefix compares the address on the stack, word by word.
func (p *program) prefix(stack int16, want netip.Prefix, miss string) {
	if !want.IsValid() {
		return
	}
	addr, bits := want.Addr().AsSlice(), want.Bits()
	for i := 0; i < len(addr) && bits > 0; i, bits = i+4, bits-32 {
		p.Add(asm.LoadMem(asm.R1, asm.RFP, stack+int16(i), asm.Word))
		if bits < 32 {
			var mask [4]byte
			binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<(32-bits))
			p.Add(asm.And.Imm32(asm.R1, int32(binary.NativeEndian.Uint32(mask[:]))))
		}
		p.Add(asm.JNE.Imm32(asm.R1, int32(binary.NativeEndian.Uint32(addr[i:])), miss))
	}
}

// htons gives a 16-bit number the order in which it lies in a packet.
func htons(v uint16) int32 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return int32(binary.NativeEndian.Uint16(b[:]))
}
