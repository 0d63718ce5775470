package target

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Match selects packets at a place: those of any of Include, but of none of Exclude.
// The zero value selects every packet except ARP and IPv6 neighbour discovery.
type Match struct {
	// Include is empty for all packets.
	Include []Flow
	Exclude []Flow
	// Control also selects ARP and IPv6 neighbour discovery (ICMPv6 133 to 137), which
	// are left alone otherwise: without them a host is not slow but unreachable. It
	// needs an empty Include.
	Control bool
}

// Flow selects packets by what they carry. A zero field matches all.
type Flow struct {
	// Protocol is the IP protocol number: 6 TCP, 17 UDP; 0 any.
	Protocol uint8
	// Source and Destination select by address; the zero Prefix is any. Addresses of
	// one family leave the other family's packets alone.
	Source, Destination netip.Prefix
	// SourcePorts and DestinationPorts select by port, for protocols that have ports:
	// TCP, UDP, UDP-Lite, SCTP, DCCP.
	SourcePorts, DestinationPorts Ports
	// FlagsSet and FlagsClear select TCP packets by flag bits as in the header (1 FIN, 2
	// SYN, 4 RST, 8 PSH, 16 ACK, 32 URG, 64 ECE, 128 CWR): all of the one must be set,
	// and none of the other. Any of them needs Protocol 6.
	FlagsSet, FlagsClear uint8
	// SourceCgroup selects packets of IP that a socket of this host sent, by that of the
	// socket; where the packet has left its socket behind, as forwarded ones have, it is not
	// selected. DestinationCgroup selects packets of TCP and UDP by the socket of the place's
	// namespace that they are for, and needs Protocol 0, 6 or 17.
	SourceCgroup, DestinationCgroup Cgroup
}

// Ports is a range of ports, both ends included. The zero value is any, also packets
// without ports.
type Ports struct{ First, Last uint16 }

// Port is the range of one port.
func Port(p uint16) Ports { return Ports{p, p} }

// Any reports whether p selects nothing by port.
func (p Ports) Any() bool { return p == Ports{} }

// String is "80", "8000-8100" or "any".
func (p Ports) String() string {
	switch {
	case p.Any():
		return "any"
	case p.First == p.Last:
		return strconv.Itoa(int(p.First))
	}
	return strconv.Itoa(int(p.First)) + "-" + strconv.Itoa(int(p.Last))
}

// ProtocolName is "tcp", "udp", ... or "protocol 4"; empty for 0.
func ProtocolName(p uint8) string {
	if name, ok := namesOfProtocols[p]; ok {
		return name
	}
	return fmt.Sprintf("protocol %d", p)
}

var namesOfProtocols = map[uint8]string{0: "", 1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp"}

// String says the flow in the field's words: "tcp to 10.77.0.2/32 port 5432".
func (f Flow) String() string {
	var parts []string
	add := func(s string) { parts = append(parts, s) }
	if f.Protocol != 0 {
		add(ProtocolName(f.Protocol))
	}
	end := func(name string, p netip.Prefix, c Cgroup, ports Ports) {
		if !c.Any() {
			add(name + " cgroup " + c.Path)
		}
		if p.IsValid() {
			add(name + " " + p.String())
		}
		if !ports.Any() {
			add(name + " port " + ports.String())
		}
	}
	if f.flagged() {
		add("flags " + FlagsText(f.FlagsSet, f.FlagsClear))
	}
	end("from", f.Source, f.SourceCgroup, f.SourcePorts)
	end("to", f.Destination, f.DestinationCgroup, f.DestinationPorts)
	if len(parts) == 0 {
		return "any"
	}
	return strings.Join(parts, " ")
}

// String says the match in one line: "all packets", "tcp to port 80 or udp to port
// 53, but not from port 22".
func (m Match) String() string {
	words := func(flows []Flow) string {
		w := make([]string, len(flows))
		for i, f := range flows {
			w[i] = f.String()
		}
		return strings.Join(w, " or ")
	}
	s := "all packets"
	if len(m.Include) > 0 {
		s = words(m.Include)
	}
	if len(m.Exclude) > 0 {
		s += ", but not " + words(m.Exclude)
	}
	if m.Control {
		s += ", ARP and neighbour discovery too"
	}
	return s
}

// Whole reports whether m selects every packet of a device (control packets apart).
func (m Match) Whole() bool { return len(m.Include) == 0 && len(m.Exclude) == 0 }

// Reverse selects the answers to what m selects. TCP flags stay: they are not those of
// the packet that is answered, but of the answer.
func (m Match) Reverse() Match {
	reverse := func(flows []Flow) []Flow {
		out := slices.Clone(flows)
		for i, f := range out {
			f.Source, f.Destination = f.Destination, f.Source
			f.SourcePorts, f.DestinationPorts = f.DestinationPorts, f.SourcePorts
			f.SourceCgroup, f.DestinationCgroup = f.DestinationCgroup, f.SourceCgroup
			out[i] = f
		}
		return out
	}
	return Match{Include: reverse(m.Include), Exclude: reverse(m.Exclude), Control: m.Control}
}

// Key is the same for two matches if and only if they select by the same words, in
// whatever order.
func (m Match) Key() string {
	words := func(flows []Flow) string {
		w := make([]string, len(flows))
		for i, f := range flows {
			w[i] = f.key()
		}
		slices.Sort(w)
		return strings.Join(slices.Compact(w), ";")
	}
	return "+" + words(m.Include) + " -" + words(m.Exclude) + " " + strconv.FormatBool(m.Control)
}

// key is put together by hand: each look at a fault asks for it several times.
func (f Flow) key() string {
	key := strconv.Itoa(int(f.Protocol)) + "," + f.Source.String() + "," + f.Destination.String() + "," +
		f.SourcePorts.String() + "," + f.DestinationPorts.String()
	if f.flagged() {
		key += "," + FlagsText(f.FlagsSet, f.FlagsClear)
	}
	if !f.SourceCgroup.Any() || !f.DestinationCgroup.Any() {
		key += ",cgroups " + strconv.FormatUint(f.SourceCgroup.ID, 10) + ">" + strconv.FormatUint(f.DestinationCgroup.ID, 10)
	}
	return key
}
