package match

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"

	"netemd/internal/ether"
	"netemd/internal/target"
	"netemd/internal/testenv"
)

// load brings m's program into the kernel.
func load(t testing.TB, m target.Match, header int) *ebpf.Program {
	t.Helper()
	testenv.Root(t)
	ins, err := Classifier(m, header)
	if err != nil {
		t.Fatalf("%s: %v", m, err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "match_test", Type: ebpf.SchedCLS, License: "GPL", Instructions: ins})
	if err != nil {
		t.Fatalf("%s: %d instructions: %+v", m, len(ins), err)
	}
	t.Cleanup(func() { prog.Close() })
	return prog
}

// runnable reports whether the kernel's test run takes a packet: newer ones refuse
// what ends before the IP header that its EtherType promises (bpf_prog_test_run_skb in
// net/bpf/test_run.c). Such packets are run inside a VLAN, where it does not look.
func runnable(packet []byte) bool {
	if len(packet) < 14 {
		return false
	}
	switch binary.BigEndian.Uint16(packet[12:]) {
	case ether.IPv4:
		return len(packet) >= 14+20
	case ether.IPv6:
		return len(packet) >= 14+40
	}
	return true
}

// runs is what the program says about a packet.
func runs(t testing.TB, prog *ebpf.Program, packet []byte) bool {
	t.Helper()
	ret, err := prog.Run(&ebpf.RunOptions{Data: packet})
	if err != nil {
		t.Fatalf("run on %x: %v", packet, err)
	}
	switch int32(ret) {
	case matched:
		return true
	case unmatched:
		return false
	}
	t.Fatalf("run on %x: returned %d", packet, int32(ret))
	return false
}

var (
	a4, b4 = netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("10.1.130.4")
	a6, b6 = netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("fd00:1:2:3:4:5:6:7")
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func include(f ...target.Flow) target.Match { return target.Match{Include: f} }
func exclude(f ...target.Flow) target.Match { return target.Match{Exclude: f} }

// The table is judged by what it says, in Go and in the kernel.
func TestSelects(t *testing.T) {
	var (
		tcp4 = frame{source: a4, destination: b4, protocol: protoTCP, payload: ports(1000, 80)}
		udp6 = frame{source: a6, destination: b6, protocol: protoUDP, payload: ports(1000, 80)}
		arp  = frame{kind: ether.ARP, payload: make([]byte, 28)}
		lldp = frame{kind: 0x88cc, payload: make([]byte, 46)}
		icmp = frame{source: a4, destination: b4, protocol: 1, payload: []byte{8, 0, 0, 0, 1, 2, 3, 4}}
		echo = frame{source: a6, destination: b6, protocol: protoICMPv6, payload: []byte{128, 0, 0, 0, 1, 2, 3, 4}}
		ns   = frame{source: a6, destination: b6, protocol: protoICMPv6, payload: []byte{135, 0, 0, 0, 1, 2, 3, 4}}
	)
	with := func(f frame, change func(f *frame)) frame { change(&f); return f }
	port80 := target.Flow{DestinationPorts: target.Port(80)}
	syn := target.Flow{Protocol: protoTCP, FlagsSet: 0x02, FlagsClear: 0x10}
	syn80 := syn
	syn80.DestinationPorts = target.Port(80)
	flagged := func(f frame, flags byte) frame {
		f.payload = append(ports(1000, 80), make([]byte, 12)...)
		f.payload[flagsAt] = flags
		return f
	}
	for _, tt := range []struct {
		name   string
		match  target.Match
		packet frame
		want   bool
	}{
		{"all: TCP", target.Match{}, tcp4, true},
		{"all: ARP", target.Match{}, arp, false},
		{"all: ARP in a VLAN", target.Match{}, with(arp, func(f *frame) { f.tags = []uint16{ether.VLAN} }), false},
		{"all: neighbour discovery", target.Match{}, ns, false},
		{"all: neighbour discovery in two VLANs", target.Match{}, with(ns, func(f *frame) { f.tags = []uint16{ether.VLANAD, ether.VLAN} }), false},
		{"all: neighbour discovery behind a header, which is none", target.Match{}, with(ns, func(f *frame) { f.extensions = []extension{{number: protoDestination}} }), true},
		{"all: ICMPv6 without a type", target.Match{}, with(ns, func(f *frame) { f.payload = nil }), true},
		{"all: echo", target.Match{}, echo, true},
		{"all: LLDP", target.Match{}, lldp, true},
		{"all: half an IPv4 header", target.Match{}, with(tcp4, func(f *frame) { f.cut = 20 }), true},
		{"all: half an IPv6 header", target.Match{}, with(udp6, func(f *frame) { f.cut = 20 }), true},
		{"control: ARP", target.Match{Control: true}, arp, true},
		{"control: neighbour discovery", target.Match{Control: true}, ns, true},
		{"control but TCP: TCP", target.Match{Control: true, Exclude: []target.Flow{{Protocol: protoTCP}}}, tcp4, false},
		{"control but TCP: ARP", target.Match{Control: true, Exclude: []target.Flow{{Protocol: protoTCP}}}, arp, true},
		{"any flow: LLDP", include(target.Flow{}), lldp, true},
		{"any flow: ARP", include(target.Flow{}), arp, false},
		{"any flow or port 80: UDP", include(port80, target.Flow{}), udp6, true},

		{"protocol: TCP", include(target.Flow{Protocol: protoTCP}), tcp4, true},
		{"protocol: UDP", include(target.Flow{Protocol: protoTCP}), udp6, false},
		{"protocol: ICMPv6, neighbour discovery", include(target.Flow{Protocol: protoICMPv6}), ns, false},
		{"protocol: ICMPv6, echo", include(target.Flow{Protocol: protoICMPv6}), echo, true},
		{"protocol: LLDP", include(target.Flow{Protocol: protoTCP}), lldp, false},
		{"protocol: cut header", include(target.Flow{Protocol: protoTCP}), with(tcp4, func(f *frame) { f.cut = 9 }), false},
		{"protocol: cut ports", include(target.Flow{Protocol: protoTCP}), with(tcp4, func(f *frame) { f.cut = 5 }), true},

		{"port: TCP and IPv4", include(port80), tcp4, true},
		{"port: UDP and IPv6", include(port80), udp6, true},
		{"port: SCTP", include(port80), with(tcp4, func(f *frame) { f.protocol = protoSCTP }), true},
		{"port: DCCP", include(port80), with(udp6, func(f *frame) { f.protocol = protoDCCP }), true},
		{"port: UDP-Lite", include(port80), with(udp6, func(f *frame) { f.protocol = protoUDPLite }), true},
		{"port: GRE", include(port80), with(tcp4, func(f *frame) { f.protocol = 47 }), false},
		{"port: ICMP", include(port80), icmp, false},
		{"port: cut", include(port80), with(tcp4, func(f *frame) { f.cut = 5 }), false},
		{"port: just whole", include(port80), with(tcp4, func(f *frame) { f.cut = 4 }), true},
		{"port: options", include(port80), with(tcp4, func(f *frame) { f.options = 10 }), true},
		{"port: first fragment", include(port80), with(tcp4, func(f *frame) { f.more = true }), true},
		{"port: later fragment", include(port80), with(tcp4, func(f *frame) { f.fragment = 185 }), false},
		{"address: later fragment", include(target.Flow{Protocol: protoTCP, Source: prefix("10.1.0.0/16")}), with(tcp4, func(f *frame) { f.fragment = 185 }), true},
		{"port: first fragment 6", include(port80), with(udp6, func(f *frame) { f.extensions = []extension{{number: protoFragment}} }), true},
		{"port: later fragment 6", include(port80), with(udp6, func(f *frame) { f.extensions = []extension{{number: protoFragment, fragment: 181}} }), false},
		{"protocol: later fragment 6", include(target.Flow{Protocol: protoUDP}), with(udp6, func(f *frame) { f.extensions = []extension{{number: protoFragment, fragment: 181}} }), true},
		{"port: four extension headers", include(port80), with(udp6, func(f *frame) {
			f.extensions = []extension{{number: protoHopByHop}, {number: protoDestination, words: 2}, {number: protoRouting, words: 1}, {number: protoFragment}}
		}), true},
		{"port: five extension headers", include(port80), with(udp6, func(f *frame) {
			f.extensions = []extension{{number: protoHopByHop}, {number: protoDestination}, {number: protoRouting}, {number: protoFragment}, {number: protoDestination}}
		}), false},
		{"address: five extension headers", include(target.Flow{Source: prefix("2001:db8::/32")}), with(udp6, func(f *frame) {
			f.extensions = []extension{{number: protoHopByHop}, {number: protoDestination}, {number: protoRouting}, {number: protoFragment}, {number: protoDestination}}
		}), true},
		{"address: cut extension header", include(target.Flow{Source: prefix("2001:db8::/32")}), with(udp6, func(f *frame) {
			f.extensions, f.cut = []extension{{number: protoHopByHop}}, 12
		}), true},
		{"protocol: cut extension header", include(target.Flow{Protocol: protoUDP}), with(udp6, func(f *frame) {
			f.extensions, f.cut = []extension{{number: protoHopByHop}}, 12
		}), false},
		{"port: VLAN", include(port80), with(tcp4, func(f *frame) { f.tags = []uint16{ether.VLAN} }), true},
		{"port: VLAN in VLAN", include(port80), with(udp6, func(f *frame) { f.tags = []uint16{ether.VLANAD, ether.VLAN} }), true},
		{"port: three VLANs", include(port80), with(udp6, func(f *frame) { f.tags = []uint16{ether.VLANAD, ether.VLAN, ether.VLAN} }), false},
		{"all: three VLANs", target.Match{}, with(arp, func(f *frame) { f.tags = []uint16{ether.VLANAD, ether.VLAN, ether.VLAN} }), true},

		{"ports: below", include(target.Flow{DestinationPorts: target.Ports{First: 81, Last: 90}}), tcp4, false},
		{"ports: first", include(target.Flow{DestinationPorts: target.Ports{First: 80, Last: 90}}), tcp4, true},
		{"ports: last", include(target.Flow{DestinationPorts: target.Ports{First: 70, Last: 80}}), tcp4, true},
		{"ports: above", include(target.Flow{DestinationPorts: target.Ports{First: 70, Last: 79}}), tcp4, false},
		{"ports: all of them", include(target.Flow{DestinationPorts: target.Ports{First: 1, Last: 65535}}), tcp4, true},
		{"ports: all of them, without", include(target.Flow{DestinationPorts: target.Ports{First: 1, Last: 65535}}), icmp, false},
		{"ports: source", include(target.Flow{SourcePorts: target.Ports{First: 1000, Last: 1001}, DestinationPorts: target.Port(80)}), tcp4, true},
		{"ports: source, other destination", include(target.Flow{SourcePorts: target.Ports{First: 1000, Last: 1001}, DestinationPorts: target.Port(81)}), tcp4, false},

		{"address: destination", include(target.Flow{Destination: prefix("10.1.128.0/17")}), tcp4, true},
		{"address: destination, odd bits", include(target.Flow{Destination: prefix("10.1.130.5/31")}), tcp4, true},
		{"address: other destination", include(target.Flow{Destination: prefix("10.1.0.0/17")}), tcp4, false},
		{"address: mapped", include(target.Flow{Destination: prefix("::ffff:10.1.128.0/113")}), tcp4, true},
		{"address: all of IPv4", include(target.Flow{Source: prefix("0.0.0.0/0")}), tcp4, true},
		{"address: all of IPv4, IPv6", include(target.Flow{Source: prefix("0.0.0.0/0")}), udp6, false},
		{"address: all of IPv6", include(target.Flow{Source: prefix("::/0")}), udp6, true},
		{"address: IPv6", include(target.Flow{Destination: prefix("fd00:1:2:3:4:5:6:7/128")}), udp6, true},
		{"address: IPv6, last word", include(target.Flow{Destination: prefix("fd00:1:2:3:4:5:6:8/128")}), udp6, false},
		{"address: IPv6, 65 bits", include(target.Flow{Destination: prefix("fd00:1:2:3::/65")}), udp6, true},
		{"address: IPv6, other 65 bits", include(target.Flow{Destination: prefix("fd00:1:2:3:8000::/65")}), udp6, false},

		{"flags: syn", include(syn), flagged(tcp4, 0x02), true},
		{"flags: syn,ack", include(syn), flagged(tcp4, 0x12), false},
		{"flags: syn beside others", include(syn), flagged(tcp4, 0xc2), true},
		{"flags: none", include(syn), flagged(tcp4, 0), false},
		{"flags: not set, of none", include(target.Flow{Protocol: protoTCP, FlagsClear: 0xff}), flagged(tcp4, 0), true},
		{"flags: all", include(target.Flow{Protocol: protoTCP, FlagsSet: 0xff}), flagged(tcp4, 0xff), true},
		{"flags: all but one", include(target.Flow{Protocol: protoTCP, FlagsSet: 0xff}), flagged(tcp4, 0x7f), false},
		{"flags: IPv6 behind a header", include(syn), with(flagged(udp6, 0x02), func(f *frame) {
			f.protocol, f.extensions = protoTCP, []extension{{number: protoDestination, words: 1}}
		}), true},
		{"flags: UDP", include(syn), flagged(udp6, 0x02), false},
		{"flags: cut before them", include(target.Flow{Protocol: protoTCP, FlagsClear: 1}), with(flagged(tcp4, 0), func(f *frame) { f.cut = 7 }), false},
		{"flags: cut behind them", include(target.Flow{Protocol: protoTCP, FlagsClear: 1}), with(flagged(tcp4, 0), func(f *frame) { f.cut = 6 }), true},
		{"flags: later fragment", include(syn), with(flagged(tcp4, 0x02), func(f *frame) { f.fragment = 185 }), false},
		{"flags and port", include(syn80), flagged(tcp4, 0x02), true},
		{"flags and port, other flags", include(syn80), flagged(tcp4, 0x10), false},
		{"flags of another flow only", include(target.Flow{Protocol: protoUDP}, syn), flagged(tcp4, 0x10), false},
		{"flags: port of another flow, cut", include(syn, port80), with(flagged(tcp4, 0x02), func(f *frame) { f.cut = 16 }), true},
		{"but: flags", exclude(syn), flagged(tcp4, 0x02), false},
		{"but: other flags", exclude(syn), flagged(tcp4, 0x10), true},

		{"or: first", include(target.Flow{Protocol: protoTCP}, target.Flow{Source: prefix("fd00::/8")}), tcp4, true},
		{"or: none", include(target.Flow{Protocol: protoTCP}, target.Flow{Source: prefix("fd00::/8")}), udp6, false},
		{"or: last", include(target.Flow{Protocol: protoTCP}, target.Flow{Destination: prefix("fd00::/8")}), udp6, true},
		{"but: excluded", exclude(port80), tcp4, false},
		{"but: other", exclude(target.Flow{DestinationPorts: target.Port(81)}), tcp4, true},
		{"but: ARP", exclude(port80), arp, false},
		{"but: LLDP", exclude(port80), lldp, true},
		{"but: cut header", exclude(target.Flow{Protocol: protoTCP}), with(tcp4, func(f *frame) { f.cut = 20 }), true},
		{"but: later fragment", exclude(port80), with(tcp4, func(f *frame) { f.fragment = 185 }), true},
		{"include but exclude", target.Match{Include: []target.Flow{{Protocol: protoTCP}}, Exclude: []target.Flow{port80}}, tcp4, false},
		{"include but exclude another", target.Match{Include: []target.Flow{{Protocol: protoTCP}}, Exclude: []target.Flow{{SourcePorts: target.Port(22)}}}, tcp4, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			packet := tt.packet.bytes()
			if err := Validate(tt.match); err != nil {
				t.Fatal(err)
			}
			if got := Selects(tt.match, packet, 14); got != tt.want {
				t.Errorf("%s: Selects says %t, want %t", tt.match, got, tt.want)
			}
			if !runnable(packet) {
				tt.packet.tags = append(tt.packet.tags, ether.VLAN)
				packet = tt.packet.bytes()
			}
			if got := runs(t, load(t, tt.match, 14), packet); got != tt.want {
				t.Errorf("%s: the program says %t, want %t", tt.match, got, tt.want)
			}
		})
	}
}

// The test run takes the protocol from where an Ethernet header has it, which is the
// first two bytes of an IPv4 source address and the fifth of an IPv6 one.
func TestSelectsWithoutEthernet(t *testing.T) {
	v4 := frame{bare: true, source: netip.MustParseAddr("8.0.0.1"), destination: b4, protocol: protoTCP, payload: ports(1000, 80)}
	v6 := frame{bare: true, source: netip.MustParseAddr("2001:db8:86dd::1"), destination: b6, protocol: protoUDP, payload: ports(1000, 80)}
	// It also counts an Ethernet header as gone.
	v4.payload = append(v4.payload, make([]byte, 14)...)
	v6.payload = append(v6.payload, make([]byte, 14)...)
	nd := v6
	nd.protocol, nd.payload = protoICMPv6, append([]byte{136}, make([]byte, 14)...)
	for _, tt := range []struct {
		match target.Match
		want  [3]bool
	}{
		{target.Match{}, [3]bool{true, true, false}},
		{target.Match{Control: true}, [3]bool{true, true, true}},
		{include(target.Flow{DestinationPorts: target.Port(80)}), [3]bool{true, true, false}},
		{include(target.Flow{Source: prefix("8.0.0.0/24")}), [3]bool{true, false, false}},
		{exclude(target.Flow{Destination: prefix("fd00::/8"), Protocol: protoUDP}), [3]bool{true, false, false}},
	} {
		prog := load(t, tt.match, 0)
		for i, f := range []frame{v4, v6, nd} {
			packet := f.bytes()
			if got := Selects(tt.match, packet, 0); got != tt.want[i] {
				t.Errorf("%s: packet %d: Selects says %t", tt.match, i, got)
			}
			if got := runs(t, prog, packet); got != tt.want[i] {
				t.Errorf("%s: packet %d: the program says %t", tt.match, i, got)
			}
		}
	}
}

// world draws matches and packets from so small a set of values that they meet.
type world struct{ *rand.Rand }

func pick[T any](w world, from ...T) T { return from[w.IntN(len(from))] }

func (w world) addr4() netip.Addr {
	return netip.AddrFrom4([4]byte{10, pick[byte](w, 0, 1), pick[byte](w, 0, 127, 128, 255), pick[byte](w, 0, 1, 2, 255)})
}

func (w world) addr6() netip.Addr {
	var a [16]byte
	copy(a[:], pick(w, "\xfd\x00", "\x20\x01"))
	for _, i := range []int{4, 8, 12, 15} {
		a[i] = pick[byte](w, 0, 1, 0x80)
	}
	return netip.AddrFrom16(a)
}

func (w world) port() uint16 { return pick[uint16](w, 0, 1, 22, 79, 80, 81, 443, 8080, 65535) }

func (w world) ports() target.Ports {
	if w.IntN(2) == 0 {
		return target.Ports{}
	}
	a, b := max(1, w.port()), max(1, w.port())
	return pick(w, target.Port(a), target.Ports{First: min(a, b), Last: max(a, b)})
}

func (w world) flow() target.Flow {
	f := target.Flow{Protocol: pick[uint8](w, 0, 0, 1, protoTCP, protoUDP, protoICMPv6, protoSCTP, protoUDPLite, protoDCCP)}
	addr, bits := w.addr4, []int{0, 8, 15, 16, 17, 24, 31, 32}
	switch w.IntN(3) {
	case 0:
		addr, bits = w.addr6, []int{0, 1, 16, 31, 32, 33, 64, 65, 96, 97, 127, 128}
	case 1:
		addr = func() netip.Addr { return netip.Addr{} }
	}
	mapped := w.IntN(4) == 0
	for _, p := range []*netip.Prefix{&f.Source, &f.Destination} {
		if a := addr(); a.IsValid() && w.IntN(2) == 0 {
			n := pick(w, bits...)
			if mapped && a.Is4() {
				a, n = netip.AddrFrom16(a.As16()), n+96
			}
			*p = netip.PrefixFrom(a, n)
		}
	}
	if f.Protocol == 0 || hasPorts(f.Protocol) {
		f.SourcePorts, f.DestinationPorts = w.ports(), w.ports()
	}
	if f.Protocol == protoTCP && w.IntN(2) == 0 {
		f.FlagsSet = w.flags()
		f.FlagsClear = w.flags() &^ f.FlagsSet
	}
	return f
}

func (w world) flags() uint8 { return pick[uint8](w, 0, 0, 1, 2, 16, 18, 24, 128, 255) }

func (w world) match() target.Match {
	for {
		if m := w.anyMatch(); Validate(m) == nil {
			return m
		}
	}
}

func (w world) anyMatch() target.Match {
	var m target.Match
	for range pick(w, 0, 1, 1, 2, 5, 30) {
		m.Include = append(m.Include, w.flow())
	}
	for range pick(w, 0, 0, 1, 2, 5, 34) {
		if f := w.flow(); f != (target.Flow{}) {
			m.Exclude = append(m.Exclude, f)
		}
	}
	m.Control = len(m.Include) == 0 && w.IntN(2) == 0
	return m
}

func (w world) packet(bare bool) []byte {
	f := frame{protocol: pick[uint8](w, 1, protoTCP, protoTCP, protoUDP, protoUDP, protoICMPv6, protoSCTP, protoUDPLite, protoDCCP, 47, 50, 51, 59, protoDestination)}
	f.bare = bare
	f.payload = append(ports(w.port(), w.port()), make([]byte, pick(w, 0, 1, 5, 6, 100))...)
	if len(f.payload) > flagsAt {
		f.payload[flagsAt] = w.flags()
	}
	if f.protocol == protoICMPv6 {
		f.payload[0] = pick[byte](w, 1, 128, 132, 133, 135, 137, 138)
	}
	for range pick(w, 0, 0, 0, 1, 2, 3) {
		f.tags = append(f.tags, pick[uint16](w, ether.VLAN, ether.VLANAD))
	}
	switch w.IntN(2) {
	case 0:
		f.source, f.destination = w.addr4(), w.addr4()
		f.options = pick(w, 0, 0, 1, 10)
		f.fragment, f.more = pick[uint16](w, 0, 0, 0, 1, 185, 0x1fff), w.IntN(2) == 0
	default:
		f.source, f.destination = w.addr6(), w.addr6()
		for range pick(w, 0, 0, 0, 1, 2, 3, 4, 5) {
			f.extensions = append(f.extensions, extension{
				number: pick[uint8](w, protoHopByHop, protoRouting, protoFragment, protoDestination),
				words:  pick[uint8](w, 0, 0, 1, 3), fragment: pick[uint16](w, 0, 0, 181),
			})
		}
	}
	if bare { // see TestSelectsWithoutEthernet
		if a := f.source.As16(); f.source.Is4() {
			f.source = netip.AddrFrom4([4]byte{8, 0, a[14], a[15]})
		} else {
			a[4], a[5] = 0x86, 0xdd
			f.source = netip.AddrFrom16(a)
		}
	} else {
		f.kind = pick[uint16](w, 0, 0, 0, 0, 0, 0, 0, ether.ARP, ether.IPv4, ether.IPv6, 0x88cc, 0x0003)
	}
	if w.IntN(4) == 0 {
		f.cut = w.IntN(100)
	}
	b := f.bytes()
	if w.IntN(8) == 0 && len(b) > 14 { // whatever comes
		at := 14
		if bare {
			at = 0
		}
		for range 3 {
			if i := at + w.IntN(len(b)-at); !bare || i > 0 && (i < 12 || i > 13) {
				b[i] = byte(w.Uint32())
			}
		}
	}
	return b
}

// Matches and packets are drawn; the kernel must agree with Selects on each.
func TestProgramAgreesWithSelects(t *testing.T) {
	matches, packets := 60, 200
	switch {
	case os.Getenv("NETEMD_TEST_LONG") != "":
		matches = 2000
	case testing.Short():
		matches = 20
	}
	for _, header := range []int{14, 0} {
		var selected, total int
		for seed := range matches {
			w := world{rand.New(rand.NewPCG(uint64(seed), uint64(header)))}
			m := w.match()
			prog := load(t, m, header)
			for range packets {
				packet := w.packet(header == 0)
				if !runnable(packet) {
					continue
				}
				want := Selects(m, packet, header)
				if got := runs(t, prog, packet); got != want {
					t.Fatalf("header %d, seed %d: %s\n%x: the program says %t, Selects %t", header, seed, m, packet, got, want)
				}
				total++
				if want {
					selected++
				}
			}
			prog.Close()
		}
		if share := float64(selected) / float64(total); share < 0.1 || share > 0.9 {
			t.Errorf("header %d: %d of %d packets were selected: this compares little", header, selected, total)
		}
	}
}

// longest is a match whose program is as long as one can be.
func longest() target.Match {
	var m target.Match
	for i := range MaxFlows {
		f := target.Flow{
			Protocol: protoTCP, SourcePorts: target.Ports{First: 1, Last: 2}, DestinationPorts: target.Ports{First: 1, Last: uint16(2 + i)},
			Source: prefix(fmt.Sprintf("2001:db8:%x::/127", i)), Destination: prefix("fd00:1:2:3:4:5:6:0/127"),
			FlagsSet: uint8(i) &^ 0x10, FlagsClear: 0x10,
		}
		if i%2 == 0 {
			m.Include = append(m.Include, f)
		} else {
			m.Exclude = append(m.Exclude, f)
		}
	}
	return m
}

func TestLongestProgram(t *testing.T) {
	anyFamily := target.Match{}
	for i := range MaxFlows {
		anyFamily.Include = append(anyFamily.Include, target.Flow{
			SourcePorts: target.Ports{First: 1, Last: 2}, DestinationPorts: target.Ports{First: 1, Last: uint16(2 + i)},
		})
	}
	for _, m := range []target.Match{longest(), anyFamily} {
		ins, err := Classifier(m, 14)
		if err != nil {
			t.Fatal(err)
		}
		prog := load(t, m, 14)
		info, err := prog.Info()
		if err != nil {
			t.Fatal(err)
		}
		verified, _ := info.VerifiedInstructions()
		t.Logf("%d instructions, %d looked at by the verifier", len(ins), verified)
		// The kernel gives up at 1,000,000 (BPF_COMPLEXITY_LIMIT_INSNS).
		if verified > 20_000 {
			t.Errorf("the verifier looked at %d instructions", verified)
		}
		p := frame{source: netip.MustParseAddr("2001:db8:3e::1"), destination: b6, protocol: protoTCP, payload: append(ports(2, 64), make([]byte, 12)...)}.bytes()
		if got, want := runs(t, prog, p), Selects(m, p, 14); got != want {
			t.Errorf("the program says %t, Selects %t", got, want)
		}
	}
}
