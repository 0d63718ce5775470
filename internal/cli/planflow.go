package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"netemd/internal/target"
)

// Protocol numbers that tc's flower has names or rules for.
const (
	protoICMP    = 1
	protoTCP     = 6
	protoUDP     = 17
	protoDCCP    = 33
	protoICMPv6  = 58
	protoSCTP    = 132
	protoUDPLite = 136
)

// flower is a filter in the words of tc-flower(8): the packets' kind, and keys.
type flower struct{ protocol, keys string }

// redirect says in tc's words how packets of a device that is not ours get to a netem:
// over an ifb, so that the device's own root qdisc stays. netem is the operation of the
// netem itself; notes are what the words cannot say.
func redirect(p target.Place, n int, netem operation, options string) (ops []operation, notes []string) {
	ifb := fmt.Sprintf("ntm%d", n)
	netem.Before = []string{
		fmt.Sprintf("ip link add name %s type ifb", ifb),
		fmt.Sprintf("ip link set dev %s up", ifb),
	}
	netem.TC = fmt.Sprintf("tc qdisc add dev %s root handle 4e45: netem %s", ifb, options)
	ops = []operation{netem}
	step := func(format string, args ...any) {
		ops = append(ops, operation{TC: fmt.Sprintf(format, args...), Netns: p.Namespace, Device: p.Device})
	}
	if n == 0 {
		step("tc qdisc add dev %s clsact", p.Device)
	}
	skip, take, notes := flowers(p.Match)
	var groups []string
	add := func(f flower, action string) {
		// The filters of one preference are of one kind of packet; those that let
		// packets pass come first. Both places of a loopback device share a hook.
		group := action + f.protocol
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
		step("tc filter add dev %s %s protocol %s pref %d flower %saction %s", p.Device, p.Hook, f.protocol, 10*n+slices.Index(groups, group)+1, f.keys, action)
	}
	for _, f := range skip {
		add(f, "pass")
	}
	for _, f := range take {
		add(f, "mirred egress redirect dev "+ifb)
	}
	notes = append(notes, "the tc lines: netemd has one bpf program instead of the filters, which selects the same packets, "+
		"and takes a clsact that is there")
	if len(skip) > 0 {
		notes = append(notes, "the tc lines: what 'action pass' leaves alone does not come to later filters of others; with netemd's program it does")
	}
	return ops, notes
}

// flowers puts a match into flower's words: what is left alone, and what is taken of
// the rest.
func flowers(m target.Match) (skip, take []flower, notes []string) {
	var unsaid bool
	if len(m.Include) == 0 {
		take = []flower{{protocol: "all"}}
	}
	for _, f := range m.Include {
		fs, all := flowerOf(f)
		take, unsaid = append(take, fs...), unsaid || !all
	}
	if len(m.Include) == 0 && !m.Control {
		skip = controlPackets()
	}
	for _, f := range m.Exclude {
		fs, all := flowerOf(f)
		unsaid = unsaid || !all
		for _, e := range fs {
			if slices.ContainsFunc(take, e.meets) {
				skip = append(skip, e)
			}
		}
	}
	if len(m.Cgroups()) > 0 {
		notes = append(notes, "the tc lines: flower cannot tell whose processes' packets they are, and takes those of all; netemd's program does")
	}
	if unsaid {
		notes = append(notes, "the tc lines: flower knows no ports of UDP-Lite and DCCP; netemd's program does")
	}
	return skip, take, notes
}

// meets reports whether a packet can be one of f and of g, as far as their kinds and
// protocols tell.
func (f flower) meets(g flower) bool {
	proto := func(f flower) string {
		if words := strings.Fields(f.keys); len(words) > 1 && words[0] == "ip_proto" {
			return words[1]
		}
		return ""
	}
	return (f.protocol == g.protocol || g.protocol == "all") && (proto(f) == "" || proto(g) == "" || proto(f) == proto(g))
}

// controlPackets are ARP and IPv6 neighbour discovery.
func controlPackets() []flower {
	out := []flower{{protocol: "arp"}}
	for kind := 133; kind <= 137; kind++ {
		out = append(out, flower{"ipv6", fmt.Sprintf("ip_proto icmpv6 type %d ", kind)})
	}
	return out
}

// flowerOf puts a flow into flower's words, a filter for each family and protocol;
// all is false when there are packets that flower cannot select.
func flowerOf(f target.Flow) (out []flower, all bool) {
	ports := !f.SourcePorts.Any() || !f.DestinationPorts.Any()
	protocols, all := []uint8{f.Protocol}, true
	switch {
	case ports && f.Protocol == 0:
		protocols, all = []uint8{protoTCP, protoUDP, protoSCTP}, false
	case ports && (f.Protocol == protoDCCP || f.Protocol == protoUDPLite):
		return nil, false
	}
	for _, family := range families(f) {
		for _, protocol := range protocols {
			keys := ""
			key := func(name string, value fmt.Stringer) { keys += name + " " + value.String() + " " }
			if protocol != 0 {
				keys = "ip_proto " + flowerProtocol(protocol) + " "
			}
			if mask := f.FlagsSet | f.FlagsClear; mask != 0 {
				keys += fmt.Sprintf("tcp_flags 0x%x/0x%x ", f.FlagsSet, mask)
			}
			if f.Source.IsValid() {
				key("src_ip", f.Source)
			}
			if f.Destination.IsValid() {
				key("dst_ip", f.Destination)
			}
			if !f.SourcePorts.Any() {
				key("src_port", f.SourcePorts)
			}
			if !f.DestinationPorts.Any() {
				key("dst_port", f.DestinationPorts)
			}
			out = append(out, flower{family, keys})
		}
	}
	return out, all
}

// families are what a flow's packets can be.
func families(f target.Flow) []string {
	v4, v6 := f.Protocol != protoICMPv6, f.Protocol != protoICMP
	for _, p := range []netip.Prefix{f.Source, f.Destination} {
		if p.IsValid() {
			v4, v6 = v4 && p.Addr().Is4(), v6 && p.Addr().Is6()
		}
	}
	var out []string
	if v4 {
		out = append(out, "ip")
	}
	if v6 {
		out = append(out, "ipv6")
	}
	return out
}

// flowerProtocol is a protocol as flower reads it: by name, or in hexadecimal digits.
func flowerProtocol(p uint8) string {
	switch p {
	case protoICMP, protoTCP, protoUDP, protoICMPv6, protoSCTP:
		return target.ProtocolName(p)
	}
	return fmt.Sprintf("0x%x", p)
}
