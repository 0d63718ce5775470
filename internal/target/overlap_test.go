package target_test

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"netemd/internal/match"
	"netemd/internal/target"
)

func flow(text string) target.Flow {
	f := target.Flow{}
	set := map[string]target.Flow{
		"tcp": {Protocol: 6}, "udp": {Protocol: 17}, "icmp": {Protocol: 1},
		"s10": {Source: netip.MustParsePrefix("10.0.0.0/8")}, "s10.1": {Source: netip.MustParsePrefix("10.1.0.0/16")},
		"d10": {Destination: netip.MustParsePrefix("10.0.0.0/8")}, "d11": {Destination: netip.MustParsePrefix("11.0.0.0/8")},
		"d4": {Destination: netip.MustParsePrefix("0.0.0.0/0")}, "d6": {Destination: netip.MustParsePrefix("::/0")},
		"s4":      {Source: netip.MustParsePrefix("0.0.0.0/0")},
		"dmapped": {Destination: netip.MustParsePrefix("::ffff:10.0.0.0/104")},
		"dp80":    {DestinationPorts: target.Port(80)}, "dp22": {DestinationPorts: target.Port(22)}, "dp1-99": {DestinationPorts: target.Ports{First: 1, Last: 99}},
		"sp80": {SourcePorts: target.Port(80)}, "sp5": {SourcePorts: target.Port(5)},
		"syn": {Protocol: 6, FlagsSet: 2}, "fin": {Protocol: 6, FlagsSet: 1}, "!ack": {Protocol: 6, FlagsClear: 16}, "!syn": {Protocol: 6, FlagsClear: 2},
	}
	word := ""
	for _, r := range text + " " {
		if r != ' ' {
			word += string(r)
			continue
		}
		g, ok := set[word]
		if !ok {
			panic("flow " + word)
		}
		word = ""
		f.Protocol = max(f.Protocol, g.Protocol)
		f.FlagsSet, f.FlagsClear = f.FlagsSet|g.FlagsSet, f.FlagsClear|g.FlagsClear
		if g.Source.IsValid() {
			f.Source = g.Source
		}
		if g.Destination.IsValid() {
			f.Destination = g.Destination
		}
		if !g.SourcePorts.Any() {
			f.SourcePorts = g.SourcePorts
		}
		if !g.DestinationPorts.Any() {
			f.DestinationPorts = g.DestinationPorts
		}
	}
	return f
}

func matchOf(include, exclude []string) target.Match {
	var m target.Match
	for _, t := range include {
		m.Include = append(m.Include, flow(t))
	}
	for _, t := range exclude {
		m.Exclude = append(m.Exclude, flow(t))
	}
	return m
}

func TestOverlaps(t *testing.T) {
	type words = []string
	for _, c := range []struct {
		a, notA, b, notB words
		want             bool
	}{
		{nil, nil, nil, nil, true},
		{nil, nil, words{"tcp dp80"}, nil, true},
		{nil, words{"dp80"}, words{"tcp dp80"}, nil, false},
		{nil, words{"dp22"}, words{"tcp dp80"}, nil, true},
		{nil, words{"tcp dp80"}, words{"dp80"}, nil, true}, // udp port 80 belongs to both
		{words{"dp80"}, nil, words{"dp1-99"}, nil, true},
		{words{"dp22"}, nil, words{"dp80"}, nil, false},
		{words{"dp80"}, nil, words{"sp80"}, nil, true}, // from port 80 to port 80
		{words{"tcp"}, nil, words{"udp"}, nil, false},
		{words{"tcp", "udp"}, nil, words{"udp dp80"}, nil, true},
		{words{"icmp"}, nil, words{"dp80"}, nil, false},
		{words{"s10"}, nil, words{"s10.1"}, nil, true},
		{words{"d10"}, nil, words{"d11"}, nil, false},
		{words{"s10"}, nil, words{"d11"}, nil, true},
		{words{"s10"}, nil, words{"d6"}, nil, false},
		{words{"dp80"}, words{"d4"}, words{"d10"}, nil, false},
		{words{"s10"}, nil, words{"dp80"}, words{"d4"}, false}, // the source says IPv4, which is excluded
		{words{"dmapped"}, nil, words{"d10"}, nil, true},
		{words{"dp1-99"}, words{"dp80"}, words{"dp80", "dp22"}, words{"dp22"}, false},
		{words{"syn"}, nil, words{"tcp dp80"}, nil, true},
		{words{"syn"}, nil, words{"udp"}, nil, false},
		{words{"syn"}, nil, words{"fin"}, nil, true}, // a packet may have both
		{words{"syn"}, nil, words{"!syn"}, nil, false},
		{words{"syn !ack"}, nil, words{"fin"}, words{"!ack"}, false},
		{words{"syn"}, words{"syn !ack"}, words{"tcp"}, nil, true}, // a SYN with an ACK
		{words{"syn"}, words{"tcp"}, nil, nil, false},
		{words{"tcp"}, words{"syn", "!syn"}, nil, nil, true}, // it takes more than their words to tell that nothing is left
	} {
		a, b := matchOf(c.a, c.notA), matchOf(c.b, c.notB)
		if got := a.Overlaps(b); got != c.want {
			t.Errorf("%s | %s: overlap %t, want %t", a, b, got, c.want)
		}
		if a.Overlaps(b) != b.Overlaps(a) {
			t.Errorf("%s | %s: not symmetric", a, b)
		}
	}
	arp := target.Match{Control: true, Exclude: []target.Flow{flow("d4"), flow("d6")}}
	if !arp.Overlaps(arp) || arp.Overlaps(matchOf(words{"tcp d4"}, nil)) {
		t.Error("control packets overlap with control packets alone")
	}
}

// packet is an IP packet with ports, as Selects reads it.
func packet(protocol uint8, src, dst netip.Addr, sport, dport uint16, flags uint8) []byte {
	const tcpHeader = 20
	var b []byte
	if src.Is4() {
		b = make([]byte, 20+tcpHeader)
		b[0], b[9] = 0x45, protocol
		copy(b[12:], src.AsSlice())
		copy(b[16:], dst.AsSlice())
	} else {
		b = make([]byte, 40+tcpHeader)
		b[0], b[6] = 0x60, protocol
		copy(b[8:], src.AsSlice())
		copy(b[24:], dst.AsSlice())
	}
	transport := b[len(b)-tcpHeader:]
	binary.BigEndian.PutUint16(transport, sport)
	binary.BigEndian.PutUint16(transport[2:], dport)
	transport[13] = flags
	return b
}

// Whenever one packet of many belongs to both of two random matches, they overlap.
func TestOverlapsMissesNoPacket(t *testing.T) {
	const seed = 1
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	random := func() target.Match {
		flows := func(n int) []target.Flow {
			var fs []target.Flow
			for range n {
				f := target.Flow{}
				for _, w := range []string{pick("", "tcp", "udp", "icmp"), pick("", "", "s10", "s10.1", "s4"), pick("", "", "d10", "d11", "d4", "d6", "dmapped"), pick("", "dp80", "dp22", "dp1-99"), pick("", "", "sp80", "sp5"), pick("", "syn", "fin", "!ack", "!syn")} {
					if w == "" {
						continue
					}
					g := flow(w)
					f.Protocol = max(f.Protocol, g.Protocol)
					f.FlagsSet, f.FlagsClear = f.FlagsSet|g.FlagsSet, f.FlagsClear|g.FlagsClear
					if g.Source.IsValid() {
						f.Source = g.Source
					}
					if g.Destination.IsValid() {
						f.Destination = g.Destination
					}
					if w[0] == 's' && len(w) > 1 && w[1] == 'p' {
						f.SourcePorts = g.SourcePorts
					}
					if w[0] == 'd' && len(w) > 1 && w[1] == 'p' {
						f.DestinationPorts = g.DestinationPorts
					}
				}
				m := target.Match{Include: []target.Flow{f}}
				if f != (target.Flow{}) && match.Validate(m) == nil {
					fs = append(fs, f)
				}
			}
			return fs
		}
		return target.Match{Include: flows(r.IntN(3)), Exclude: flows(r.IntN(3))}
	}
	var packets [][]byte
	for _, protocol := range []uint8{1, 6, 17, 47} {
		for _, ends := range [][2]string{{"10.1.2.3", "10.9.9.9"}, {"10.2.2.3", "11.0.0.1"}, {"192.0.2.1", "192.0.2.2"}, {"10.1.2.3", "192.0.2.2"}, {"2001:db8::1", "2001:db8::2"}} {
			for _, ports := range [][2]uint16{{80, 80}, {5, 80}, {5, 22}, {80, 22}, {80, 500}, {7, 7}, {5, 500}} {
				for _, flags := range []uint8{0, 2, 16, 18, 1} {
					packets = append(packets, packet(protocol, netip.MustParseAddr(ends[0]), netip.MustParseAddr(ends[1]), ports[0], ports[1], flags))
				}
			}
		}
	}
	apart := 0
	for range 3000 {
		a, b := random(), random()
		overlap := a.Overlaps(b)
		if !overlap {
			apart++
		}
		for _, p := range packets {
			if match.Selects(a, p, 0) && match.Selects(b, p, 0) && !overlap {
				t.Fatalf("%s | %s: a packet belongs to both, and they are said to be apart: % x", a, b, p)
			}
		}
	}
	if apart < 300 {
		t.Errorf("%d of 3000 pairs are apart, too few for a test", apart)
	}
}

func TestMirrors(t *testing.T) {
	type words = []string
	for _, c := range []struct {
		flows words
		want  bool
	}{
		{nil, false},
		{words{"tcp dp80"}, true},
		{words{"dp80", "dp22"}, true},
		{words{"sp80"}, true},
		{words{"sp80 dp80"}, false},
		{words{"sp5 dp80"}, true},
		{words{"dp80", "sp5"}, false},
		{words{"d10"}, false}, // from 10/8 to 10/8 is in both
		{words{"s10 d11"}, true},
		{words{"tcp"}, false},
		{words{"syn"}, false}, // both ends send SYNs
		{words{"syn dp80"}, true},
	} {
		m := matchOf(c.flows, nil)
		if got := m.Mirrors(m.Reverse()); got != c.want {
			t.Errorf("%s: told apart %t, want %t", m, got, c.want)
		}
	}
	// A client's own port may be in a wide range, and its packets in both.
	for ports, want := range map[target.Ports]bool{{First: 1024, Last: 65535}: false, {First: 40000, Last: 40001}: false, {First: 8000, Last: 8100}: true, target.Port(40000): true} {
		m := target.Match{Include: []target.Flow{{Protocol: 6, DestinationPorts: ports}}}
		if got := m.Mirrors(m.Reverse()); got != want {
			t.Errorf("%s: told apart %t, want %t", m, got, want)
		}
	}
	if matchOf(words{"dp80"}, nil).Mirrors(matchOf(words{"sp5"}, nil)) {
		t.Error("another flow is no mirror")
	}
	place := func(hook target.Hook, m target.Match) target.Place {
		return target.Place{Device: "lo", Index: 1, Hook: hook, Match: m}
	}
	for _, c := range []struct {
		t    target.Target
		fine bool
	}{
		{target.Target{To: place(target.Egress, target.Match{}), From: place(target.Egress, target.Match{})}, false},
		{target.Target{To: place(target.Egress, target.Match{}), From: place(target.Ingress, target.Match{})}, true},
		{target.Target{To: place(target.Egress, matchOf(words{"dp80"}, nil)), From: place(target.Egress, matchOf(words{"sp80"}, nil))}, true},
	} {
		if err := c.t.TellApart(); (err == nil) != c.fine {
			t.Errorf("%s, %s: %v", c.t.To.Match, c.t.From.Hook, err)
		}
	}
}
