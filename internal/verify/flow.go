package verify

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"

	"netemd/internal/match"
	"netemd/internal/target"
)

// IP protocol numbers (IANA, Protocol Numbers).
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoDCCP   = 33
	protoICMPv6 = 58
	protoSCTP   = 132
)

// flagACK is what every segment of a connection has but the first (RFC 9293).
const flagACK = 0x10

// flow is what the packets of a run have in common.
type flow struct {
	protocol uint8
	from, to netip.AddrPort
	// flags are those of TCP, as in its header.
	flags uint8
}

// String says it in the field's words.
func (f flow) String() string {
	name := target.ProtocolName(f.protocol)
	if !hasPorts(f.protocol) {
		return fmt.Sprintf("%s from %s to %s", name, f.from.Addr(), f.to.Addr())
	}
	if f.protocol == protoTCP && f.flags != flagACK {
		name += " with " + cmp.Or(target.FlagsText(f.flags, 0), "no flags")
	}
	return fmt.Sprintf("%s from %s port %d to %s port %d", name, f.from.Addr(), f.from.Port(), f.to.Addr(), f.to.Port())
}

func hasPorts(protocol uint8) bool {
	const udpLite = 136
	switch protocol {
	case protoTCP, protoUDP, protoDCCP, protoSCTP, udpLite:
		return true
	}
	return false
}

// ends are the addresses of a flow where its match leaves them open, at most one of
// each family.
type ends struct{ from, to []netip.Addr }

// ofFamily are those of addrs in a's family.
func ofFamily(addrs []netip.Addr, four bool) []netip.Addr {
	var found []netip.Addr
	for _, a := range addrs {
		if a.Is4() == four {
			found = append(found, a)
		}
	}
	return found
}

// errNoFlow is returned when no packet that belongs to a match is found.
var errNoFlow = errors.New("no packet is found that the fault selects")

// flowFor chooses packets that m selects: of its first flow that allows it, with its
// first host of each prefix, TCP unless it says UDP or another protocol, with ACK alone
// unless the flow says otherwise, and ports that nobody serves where they are open.
func flowFor(m target.Match, open ends) (flow, error) {
	include := m.Include
	if len(include) == 0 {
		include = []target.Flow{{}}
	}
	for _, f := range include {
		protocols := []uint8{f.Protocol}
		if f.Protocol == 0 {
			protocols = []uint8{protoTCP, protoUDP}
		}
		for _, four := range []bool{true, false} {
			for _, from := range addresses(f.Source, open.from, four) {
				for _, to := range addresses(f.Destination, open.to, four) {
					for _, protocol := range protocols {
						if got, ok := withPorts(m, f, protocol, from, to); ok {
							return got, nil
						}
					}
				}
			}
		}
	}
	return flow{}, fmt.Errorf("%w: %s", errNoFlow, m)
}

// addresses are candidates for one end: hosts of the prefix, or what is open.
func addresses(p netip.Prefix, open []netip.Addr, four bool) []netip.Addr {
	if !p.IsValid() {
		return ofFamily(open, four)
	}
	addr, bits := p.Masked().Addr(), p.Addr().BitLen()-p.Bits()
	if addr.Is4In6() && p.Bits() >= 96 {
		addr = addr.Unmap()
	}
	if addr.Is4() != four {
		return nil
	}
	if bits <= 1 {
		return []netip.Addr{addr}
	}
	// Past the network's own address; more than one, since some may be excluded.
	var found []netip.Addr
	for range min(1<<min(bits, 6)-2, 30) {
		addr = addr.Next()
		found = append(found, addr)
	}
	return found
}

// withPorts tries ports until m selects the packet.
func withPorts(m target.Match, f target.Flow, protocol uint8, from, to netip.Addr) (flow, bool) {
	sources, destinations := []uint16{0}, []uint16{0}
	if hasPorts(protocol) {
		sources, destinations = ports(f.SourcePorts), ports(f.DestinationPorts)
	} else if !f.SourcePorts.Any() || !f.DestinationPorts.Any() {
		return flow{}, false
	}
	for _, source := range sources {
		for _, destination := range destinations {
			fl := flow{protocol: protocol, from: netip.AddrPortFrom(from, source), to: netip.AddrPortFrom(to, destination)}
			if protocol == protoTCP {
				fl.flags = flagACK&^f.FlagsClear | f.FlagsSet
			}
			p := packet{flow: fl, size: minSize(fl)}
			if match.Selects(m, p.bytes(0), 0) {
				return fl, true
			}
		}
	}
	return flow{}, false
}

// ports are candidates of a range; where it is open, some in the middle of the
// private ports and below, which hardly anybody serves (IANA, Service Name and Port
// Number Registry).
func ports(r target.Ports) []uint16 {
	if r.Any() {
		return []uint16{61_713, 50_021, 2_047}
	}
	found := []uint16{r.First}
	for n := uint32(r.First) + 1; n <= uint32(r.Last) && len(found) < 30; n++ {
		found = append(found, uint16(n))
	}
	if r.Last != r.First {
		found = append(found, r.Last)
	}
	return found
}
