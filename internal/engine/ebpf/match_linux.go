package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
)

// htons gives a 16-bit number the order in which it lies in a packet.
func htons(v uint16) int32 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return int32(binary.NativeEndian.Uint16(b[:]))
}

// flow is the one flow that a classifier selects.
type flow struct {
	Protocol                    uint8
	Source, Destination         netip.Prefix
	SourcePort, DestinationPort uint16
}

// flowOf is the flow of a match. Several flows, exclusions, ranges of ports and
// control packets are errors.ErrUnsupported.
func flowOf(m target.Match) (flow, error) {
	if m.Whole() && !m.Control {
		return flow{}, nil
	}
	if len(m.Include) != 1 || len(m.Exclude) > 0 || m.Control ||
		m.Include[0].SourcePorts.First != m.Include[0].SourcePorts.Last || m.Include[0].DestinationPorts.First != m.Include[0].DestinationPorts.Last {
		return flow{}, fmt.Errorf("several flows, exclusions, ranges of ports or control packets: %w", errors.ErrUnsupported)
	}
	f := m.Include[0]
	return flow{f.Protocol, f.Source, f.Destination, f.SourcePorts.First, f.DestinationPorts.First}, nil
}

// match jumps to pass unless the packet belongs to the flow. ARP and neighbour
// discovery never do: a lost ARP reply would show as a connect that takes a second
// with no SYN lost.
func (c *classifier) match(s *sequence) error {
	f := c.flow
	f.Source, f.Destination = unmap(f.Source), unmap(f.Destination)
	v4, v6 := true, true
	for _, p := range []netip.Prefix{f.Source, f.Destination} {
		if p.IsValid() {
			v4, v6 = v4 && p.Addr().Is4(), v6 && p.Addr().Is6()
		}
	}
	if !v4 && !v6 {
		return fmt.Errorf("flow: source %s and destination %s are of different families", f.Source, f.Destination)
	}
	ports := f.SourcePort != 0 || f.DestinationPort != 0
	if ports && f.Protocol != 0 && !hasPorts(f.Protocol) {
		return fmt.Errorf("flow: protocol %d has no ports", f.Protocol)
	}

	other := "pass" // what neither IPv4 nor IPv6 branch takes
	if f == (flow{}) {
		other = "selected"
	}
	s.add(
		asm.LoadMem(asm.R1, rSkb, skbProtocol, asm.Word),
		asm.JEq.Imm(asm.R1, htons(unix.ETH_P_ARP), "pass"),
	)
	if v6 {
		s.add(asm.JEq.Imm(asm.R1, htons(unix.ETH_P_IPV6), "ipv6"))
	}
	if v4 && f != (flow{}) {
		s.add(asm.JEq.Imm(asm.R1, htons(unix.ETH_P_IP), "ipv4"))
	}
	s.add(asm.Ja.Label(other))
	if v4 && f != (flow{}) {
		c.matchIPv4(s, f)
	}
	if v6 {
		c.matchIPv6(s, f)
	}
	if f != (flow{}) {
		c.matchTransport(s, f, ports)
	}
	s.at("selected")
	return nil
}

// matchIPv4 leaves protocol, fragment position and transport offset on the stack.
func (c *classifier) matchIPv4(s *sequence, f flow) {
	s.at("ipv4")
	s.add(asm.Mov.Imm(asm.R2, int32(c.header)))
	s.load(stackHeader, 20, "pass")
	matchPrefix(s, stackHeader+12, f.Source)
	matchPrefix(s, stackHeader+16, f.Destination)
	s.add(
		asm.LoadMem(asm.R1, asm.RFP, stackHeader, asm.Byte), // version and header length
		asm.And.Imm(asm.R1, 0x0f),
		asm.LSh.Imm(asm.R1, 2),
		asm.Add.Imm(asm.R1, int32(c.header)),
		asm.StoreMem(asm.RFP, stackOffset, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, stackHeader+9, asm.Byte),
		asm.StoreMem(asm.RFP, stackProto, asm.R1, asm.DWord),
		asm.LoadMem(asm.R1, asm.RFP, stackHeader+6, asm.Half), // flags and fragment offset
		asm.And.Imm(asm.R1, htons(0x1fff)),
		asm.Mov.Imm(asm.R2, 1),
		asm.JEq.Imm(asm.R1, 0, "v4first"),
		asm.Mov.Imm(asm.R2, 0),
	)
	s.at("v4first")
	s.add(
		asm.StoreMem(asm.RFP, stackFirst, asm.R2, asm.DWord),
		asm.Ja.Label("transport"),
	)
}

// extensions is how many IPv6 extension headers are walked. A packet with more
// belongs to no flow that says a protocol.
const extensions = 4

func (c *classifier) matchIPv6(s *sequence, f flow) {
	s.at("ipv6")
	s.add(asm.Mov.Imm(asm.R2, int32(c.header)))
	s.load(stackHeader, 40, "pass")
	matchPrefix(s, stackHeader+8, f.Source)
	matchPrefix(s, stackHeader+24, f.Destination)

	// Neighbour discovery has no extension headers (RFC 6980) and is ICMPv6, types
	// 133 to 137.
	s.add(
		asm.LoadMem(asm.R1, asm.RFP, stackHeader+6, asm.Byte),
		asm.JNE.Imm(asm.R1, unix.IPPROTO_ICMPV6, "v6other"),
		asm.Mov.Imm(asm.R2, int32(c.header+40)),
	)
	s.load(stackExt, 1, "v6other")
	s.add(
		asm.LoadMem(asm.R1, asm.RFP, stackExt, asm.Byte),
		asm.Sub.Imm(asm.R1, 133),
		asm.JLE.Imm(asm.R1, 137-133, "pass"),
	)
	s.at("v6other")
	if f == (flow{}) {
		s.add(asm.Ja.Label("selected"))
		return
	}

	// rAux is the next header, the transport's offset is on the stack.
	s.add(
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreMem(asm.RFP, stackFirst, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R1, int32(c.header+40)),
		asm.StoreMem(asm.RFP, stackOffset, asm.R1, asm.DWord),
		asm.LoadMem(rAux, asm.RFP, stackHeader+6, asm.Byte),
	)
	for i := range extensions {
		label := func(what string) string { return fmt.Sprintf("v6%s%d", what, i) }
		s.add(
			asm.JEq.Imm(rAux, unix.IPPROTO_HOPOPTS, label("walk")),
			asm.JEq.Imm(rAux, unix.IPPROTO_ROUTING, label("walk")),
			asm.JEq.Imm(rAux, unix.IPPROTO_DSTOPTS, label("walk")),
			asm.JNE.Imm(rAux, unix.IPPROTO_FRAGMENT, "v6done"),
		)
		s.at(label("walk"))
		s.add(asm.LoadMem(asm.R2, asm.RFP, stackOffset, asm.DWord))
		s.load(stackExt, 8, "pass")
		s.add(
			asm.Mov.Imm(asm.R2, 8), // a fragment header's length
			asm.JEq.Imm(rAux, unix.IPPROTO_FRAGMENT, label("fragment")),
			asm.LoadMem(asm.R2, asm.RFP, stackExt+1, asm.Byte), // in 8 bytes, less one
			asm.Add.Imm(asm.R2, 1),
			asm.LSh.Imm(asm.R2, 3),
			asm.Ja.Label(label("next")),
		)
		s.at(label("fragment"))
		s.add(
			asm.LoadMem(asm.R1, asm.RFP, stackExt+2, asm.Half),
			asm.And.Imm(asm.R1, htons(0xfff8)),
			asm.JEq.Imm(asm.R1, 0, label("next")),
			asm.Mov.Imm(asm.R1, 0),
			asm.StoreMem(asm.RFP, stackFirst, asm.R1, asm.DWord),
		)
		s.at(label("next"))
		s.add(
			asm.LoadMem(rAux, asm.RFP, stackExt, asm.Byte),
			asm.LoadMem(asm.R1, asm.RFP, stackOffset, asm.DWord),
			asm.Add.Reg(asm.R1, asm.R2),
			asm.StoreMem(asm.RFP, stackOffset, asm.R1, asm.DWord),
			// What follows in a later fragment is no header.
			asm.LoadMem(asm.R1, asm.RFP, stackFirst, asm.DWord),
			asm.JEq.Imm(asm.R1, 0, "v6done"),
		)
	}
	s.at("v6done")
	s.add(asm.StoreMem(asm.RFP, stackProto, rAux, asm.DWord))
}

func (c *classifier) matchTransport(s *sequence, f flow, ports bool) {
	s.at("transport")
	s.add(asm.LoadMem(asm.R1, asm.RFP, stackProto, asm.DWord))
	if f.Protocol != 0 {
		s.add(asm.JNE.Imm(asm.R1, int32(f.Protocol), "pass"))
	}
	if !ports {
		return
	}
	if f.Protocol == 0 {
		for _, p := range portProtocols {
			s.add(asm.JEq.Imm(asm.R1, int32(p), "ports"))
		}
		s.add(asm.Ja.Label("pass"))
	}
	s.at("ports")
	s.add(
		asm.LoadMem(asm.R1, asm.RFP, stackFirst, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "pass"),
		asm.LoadMem(asm.R2, asm.RFP, stackOffset, asm.DWord),
	)
	s.load(stackPorts, 4, "pass")
	for i, port := range []uint16{f.SourcePort, f.DestinationPort} {
		if port != 0 {
			s.add(
				asm.LoadMem(asm.R1, asm.RFP, int16(stackPorts+2*i), asm.Half),
				asm.JNE.Imm(asm.R1, htons(port), "pass"),
			)
		}
	}
}

// portProtocols begin with source and destination port, 16 bits each.
var portProtocols = []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_SCTP, unix.IPPROTO_DCCP, unix.IPPROTO_UDPLITE}

func hasPorts(protocol uint8) bool { return slices.Contains(portProtocols, protocol) }

// matchPrefix compares the address at stack with p, word by word.
func matchPrefix(s *sequence, stack int16, p netip.Prefix) {
	if !p.IsValid() {
		return
	}
	addr, bits := p.Masked().Addr().AsSlice(), p.Bits()
	for i := 0; i < len(addr) && bits > 0; i, bits = i+4, bits-32 {
		var mask [4]byte
		binary.BigEndian.PutUint32(mask[:], ^uint32(0)<<max(0, 32-bits))
		s.add(
			asm.LoadMem(asm.R1, asm.RFP, stack+int16(i), asm.Word),
			asm.LoadImm(asm.R2, int64(binary.NativeEndian.Uint32(mask[:])), asm.DWord),
			asm.And.Reg(asm.R1, asm.R2),
			asm.LoadImm(asm.R2, int64(binary.NativeEndian.Uint32(addr[i:])), asm.DWord),
			asm.JNE.Reg(asm.R1, asm.R2, "pass"),
		)
	}
}

// unmap turns an IPv4-mapped prefix into an IPv4 one.
func unmap(p netip.Prefix) netip.Prefix {
	if p.IsValid() && p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
