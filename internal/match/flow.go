package match

import (
	"net/netip"
	"slices"

	"netemd/internal/target"
)

// IP protocol numbers (IANA, Protocol Numbers).
const (
	protoHopByHop    = 0
	protoTCP         = 6
	protoUDP         = 17
	protoDCCP        = 33
	protoRouting     = 43
	protoFragment    = 44
	protoICMPv6      = 58
	protoDestination = 60
	protoSCTP        = 132
	protoUDPLite     = 136
)

const (
	// unread is the protocol of a packet that ends before it says it.
	unread = 256
	// flagsAt is where a TCP header has its flags, and noFlags those of a packet that
	// has none; no flag has that bit.
	flagsAt = 13
	noFlags = 0x100
	// noPorts is the port of a packet without ports, above every range.
	noPorts = -1

	// Neighbour discovery's first and last ICMPv6 type (RFC 4861); it has no
	// extension headers (RFC 6980).
	discoverFirst, discoverLast = 133, 137
)

// portProtocols begin with source and destination port, 16 bits each.
var portProtocols = []uint8{protoTCP, protoUDP, protoSCTP, protoDCCP, protoUDPLite}

func hasPorts(protocol uint8) bool { return slices.Contains(portProtocols, protocol) }

// walked are the extension headers that are walked over.
func walked(protocol uint8) bool {
	return slices.Contains([]uint8{protoHopByHop, protoRouting, protoFragment, protoDestination}, protocol)
}

// unmap turns an IPv4-mapped prefix into an IPv4 one.
func unmap(p netip.Prefix) netip.Prefix {
	if p.IsValid() && p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// normal returns flows with unmapped prefixes without host bits.
func normal(flows []target.Flow) []target.Flow {
	out := slices.Clone(flows)
	for i := range out {
		for _, p := range []*netip.Prefix{&out[i].Source, &out[i].Destination} {
			*p = unmap(*p).Masked()
		}
	}
	return out
}

// family is 4 or 6 for a flow of one family, 0 for both.
func family(f target.Flow) int {
	for _, p := range []netip.Prefix{f.Source, f.Destination} {
		switch {
		case !p.IsValid():
		case p.Addr().Is4():
			return 4
		default:
			return 6
		}
	}
	return 0
}

// ofFamily returns those of flows that can select packets of a family.
func ofFamily(flows []target.Flow, want int) []target.Flow {
	return slices.DeleteFunc(slices.Clone(flows), func(f target.Flow) bool {
		got := family(f)
		return got != 0 && got != want
	})
}

// whole reports whether f selects every packet of its families.
func whole(f target.Flow) bool {
	return f.Protocol == 0 && !flagged(f) && f.SourcePorts.Any() && f.DestinationPorts.Any() &&
		f.Source.Bits() <= 0 && f.Destination.Bits() <= 0 && f.SourceCgroup.Any() && f.DestinationCgroup.Any()
}

// flagged reports whether f selects by TCP flags.
func flagged(f target.Flow) bool { return f.FlagsSet|f.FlagsClear != 0 }

// everything reports whether m takes what belongs to no flow, too.
func everything(m target.Match) bool {
	return len(m.Include) == 0 || slices.Contains(m.Include, target.Flow{})
}

// Family is 4 or 6 when m can select packets of that family only, and 0 otherwise.
func Family(m target.Match) int {
	found := 0
	for i, f := range normal(m.Include) {
		got := family(f)
		if got == 0 || i > 0 && got != found {
			return 0
		}
		found = got
	}
	return found
}
