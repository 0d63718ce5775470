package verify

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"netemd/internal/match"
	"netemd/internal/target"
)

var (
	four = ends{[]netip.Addr{netip.MustParseAddr("192.0.2.1")}, []netip.Addr{netip.MustParseAddr("192.0.2.2")}}
	both = ends{append(four.from, netip.MustParseAddr("2001:db8::1")), append(four.to, netip.MustParseAddr("2001:db8::2"))}
)

// rightSum reports whether the transport checksum of an IP packet is right.
func rightSum(f flow, ip []byte) bool {
	body := ip[ipHeader(f):]
	total := uint32(sum(body))
	if f.protocol != protoICMP {
		length := []byte{byte(len(body) >> 8), byte(len(body))}
		total += uint32(sum(f.from.Addr().AsSlice())) + uint32(sum(f.to.Addr().AsSlice())) + uint32(sum(length)) + uint32(f.protocol)
	}
	return fold(total) == 0xffff
}

// Whatever bit of a packet is flipped, its number is read, the damage is seen, and no
// host takes it for a sound one.
func TestFlippedBits(t *testing.T) {
	for _, protocol := range []uint8{protoTCP, protoUDP, protoICMP, protoICMPv6, protoSCTP, 47} {
		for _, v4 := range []bool{true, false} {
			open := both
			if v4 {
				open = four
			} else {
				open.from, open.to = open.from[1:], open.to[1:]
			}
			f, err := flowFor(target.Match{Include: []target.Flow{{Protocol: protocol}}}, open)
			if err != nil {
				t.Fatal(err)
			}
			p := packet{flow: f, size: 128, run: 0xfeedbeef, ecn: ect0}
			for _, number := range []uint32{0, 1, 77, 999_999} {
				whole := p.bytes(number)
				if damaged, marked, _ := p.compare(whole, p.bytes(number)); damaged || marked {
					t.Fatalf("%s: a whole packet is damaged %t, marked %t", f, damaged, marked)
				}
				summed := protocol != protoSCTP && protocol != 47
				if summed && rightSum(f, whole) {
					t.Errorf("%s: packet %d has the right checksum", f, number)
				}
				if v4 && sum(whole[:ipv4Header]) != 0xffff {
					t.Errorf("%s: the IP header's checksum is wrong", f)
				}
				for bit := range 8 * len(whole) {
					b := bytes.Clone(whole)
					b[bit/8] ^= 1 << (bit % 8)
					got, ok := p.number(b)
					if !ok || got != int(number) {
						t.Fatalf("%s: bit %d: number %d, %t", f, bit, got, ok)
					}
					damaged, marked, way := p.compare(b, p.bytes(number))
					// What most have tells a flipped hop limit, and one bit makes a mark.
					seen := damaged || !v4 && way != hopLimit || !v4 && marked && bit/8 == 1
					if !seen {
						t.Errorf("%s: bit %d: no damage is seen", f, bit)
					}
					if at := bit / 8; summed && at >= ipHeader(f) && rightSum(f, b) {
						t.Errorf("%s: packet %d is right with bit %d flipped", f, number, bit)
					}
				}
			}
		}
	}
}

func TestMarkIsNoDamage(t *testing.T) {
	for _, open := range []ends{four, {both.from[1:], both.to[1:]}} {
		f, err := flowFor(target.Match{}, open)
		if err != nil {
			t.Fatal(err)
		}
		p := packet{flow: f, size: 100, run: 1, ecn: ect0}
		marked := p
		marked.ecn = ce
		if damaged, ok, _ := p.compare(marked.bytes(5), p.bytes(5)); damaged || !ok {
			t.Errorf("%s: marked: damaged %t, marked %t", f, damaged, ok)
		}
		p.ecn = 0 // nobody may mark it
		if damaged, ok, _ := p.compare(marked.bytes(5), p.bytes(5)); !damaged || ok {
			t.Errorf("%s: marked without ECN: damaged %t, marked %t", f, damaged, ok)
		}
		if _, ok := (packet{flow: f, size: 100, run: 2}).number(p.bytes(5)); ok {
			t.Errorf("%s: another run's packet was taken", f)
		}
	}
}

func TestFlowFor(t *testing.T) {
	prefix := netip.MustParsePrefix
	for want, m := range map[string]target.Match{
		"tcp from 192.0.2.1 port 61713 to 192.0.2.2 port 61713": {},
		"udp from 192.0.2.1 port 61713 to 198.51.100.1 port 53": {Include: []target.Flow{
			{Protocol: protoUDP, Destination: prefix("198.51.100.0/24"), DestinationPorts: target.Port(53)}}},
		"tcp from 192.0.2.1 port 61713 to 198.51.100.0 port 61713": {Include: []target.Flow{{Destination: prefix("198.51.100.0/31")}}},
		"tcp from 2001:db8:1::7 port 22 to 2001:db8::2 port 61713": {Include: []target.Flow{
			{Source: prefix("2001:db8:1::7/128"), SourcePorts: target.Port(22)}}},
		"udp from 192.0.2.1 port 61713 to 192.0.2.2 port 61713": {Exclude: []target.Flow{{Protocol: protoTCP}}},
		"tcp from 192.0.2.1 port 50021 to 192.0.2.2 port 50021": {Exclude: []target.Flow{
			{DestinationPorts: target.Ports{First: 61_000, Last: 62_000}}, {SourcePorts: target.Port(61_713)}}},
		"tcp from 2001:db8::1 port 61713 to 2001:db8::2 port 61713": {Exclude: []target.Flow{{Source: prefix("0.0.0.0/0")}}},
		"tcp from 192.0.2.1 port 61713 to 198.51.100.3 port 8003": {
			Include: []target.Flow{{Destination: prefix("198.51.100.0/24"), DestinationPorts: target.Ports{First: 8000, Last: 8005}}},
			Exclude: []target.Flow{{Destination: prefix("198.51.100.0/31")}, {Destination: prefix("198.51.100.2/32")}, {DestinationPorts: target.Ports{First: 8000, Last: 8002}}},
		},
		"protocol 47 from 192.0.2.1 to 192.0.2.2": {Include: []target.Flow{{Protocol: 47}}},
	} {
		f, err := flowFor(m, both)
		if err != nil || f.String() != want {
			t.Errorf("%v: %s, %v; want %s", m, f, err, want)
			continue
		}
		if p := (packet{flow: f, size: 200}); !match.Selects(m, p.bytes(7), 0) {
			t.Errorf("%v does not select %s", m, f)
		}
	}
	_, err := flowFor(target.Match{Include: []target.Flow{{Protocol: protoTCP}}, Exclude: []target.Flow{{DestinationPorts: target.Ports{First: 1, Last: 65535}}}}, both)
	if err == nil || !strings.Contains(err.Error(), errNoFlow.Error()) {
		t.Errorf("all ports excluded: %v", err)
	}
}

// A fault on packets with some flags is verified with such packets.
func TestFlowWithFlags(t *testing.T) {
	for _, tt := range []struct{ set, unset, want uint8 }{
		{0, 0, 0x10}, {2, 0x10, 2}, {2, 0, 0x12}, {1, 0, 0x11}, {4, 0x10, 4}, {0, 2, 0x10}, {0, 0x10, 0}, {0x18, 7, 0x18},
	} {
		m := target.Match{Include: []target.Flow{{Protocol: protoTCP, FlagsSet: tt.set, FlagsClear: tt.unset, DestinationPorts: target.Port(80)}}}
		for _, open := range []ends{four, {both.from[1:], both.to[1:]}} {
			f, err := flowFor(m, open)
			if err != nil {
				t.Errorf("%s: %v", m, err)
				continue
			}
			p := packet{flow: f, size: 128, run: 7}.bytes(3)
			if got := p[ipHeader(f)+13]; got != tt.want || !match.Selects(m, p, 0) || rightSum(f, p) {
				t.Errorf("%s: flags %#x, want %#x; selected %t, sound checksum %t", m, got, tt.want, match.Selects(m, p, 0), rightSum(f, p))
			}
			if said := strings.Contains(f.String(), "tcp with "+target.FlagsText(tt.want, 0)); tt.want != 0 && said != (tt.want != 0x10) {
				t.Errorf("%s: %s", m, f)
			}
		}
	}
}
