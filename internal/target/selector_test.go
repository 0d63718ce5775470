package target

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/qdisc"
)

func TestParsePorts(t *testing.T) {
	for in, want := range map[string]Ports{"80": Port(80), "1-65535": {1, 65535}, "8000-8100": {8000, 8100}, "53-53": Port(53)} {
		if got, err := ParsePorts(in); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "-1", "65536", "8100-8000", "80-", "-80", "80,81", "any", "http", "+80", "8 0", "0-80", "1-2-3"} {
		if got, err := ParsePorts(in); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%q: %v, %v, want invalid", in, got, err)
		}
	}
}

func TestParseFlags(t *testing.T) {
	for in, want := range map[string][2]uint8{"syn": {2, 0}, "syn,!ack": {2, 16}, "!CWR,ece": {64, 128}, "fin,psh,urg,syn,rst,ack,ece,cwr": {255, 0}, "syn,syn": {2, 0}} {
		set, unset, err := ParseFlags(in)
		if err != nil || [2]uint8{set, unset} != want {
			t.Errorf("%q: %d, %d, %v, want %v", in, set, unset, err, want)
		}
		if set2, unset2, err := ParseFlags(FlagsText(set, unset)); err != nil || set2 != set || unset2 != unset {
			t.Errorf("%q as text is %q, which reads as %d, %d, %v", in, FlagsText(set, unset), set2, unset2, err)
		}
	}
	for _, in := range []string{"", "syn,", "!", "!!syn", "syn ack", "syn,!syn", "ns", "2"} {
		if set, unset, err := ParseFlags(in); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%q: %d, %d, %v, want invalid", in, set, unset, err)
		}
	}
}

func TestParseProtocol(t *testing.T) {
	for in, want := range map[string]uint8{"tcp": 6, "UDP": 17, "icmp": 1, "icmpv6": 58, "sctp": 132, "47": 47, "255": 255} {
		if got, err := ParseProtocol(in); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "256", "-1", "any", "tcp6", "6.0"} {
		if got, err := ParseProtocol(in); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%q: %v, %v, want invalid", in, got, err)
		}
	}
}

func TestValidateSelector(t *testing.T) {
	good := []Selector{
		{Device: "eth0"},
		{Device: "eth0", Control: true, ExcludePorts: []Ports{Port(22)}},
		{Namespace: "blue", Device: "v0.100", Protocol: 6, Peers: []string{"192.0.2.0/24", "2001:db8::/32", "db.example.", "_x.y"}, PeerPorts: []Ports{{1, 65535}}},
		{Device: "an-alternative-name-of-a-device", Protocol: 47},
		{Device: "eth0", Peers: []string{"0.0.0.0/0"}},
	}
	for _, s := range good {
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
	for _, c := range []struct {
		selector Selector
		fields   string
	}{
		{Selector{}, "dev"},
		{Selector{Device: "eth0@if5"}, "dev"},
		{Selector{Device: "a b"}, "dev"},
		{Selector{Device: ".."}, "dev"},
		{Selector{Device: strings.Repeat("x", 128)}, "dev"},
		{Selector{Device: "v0", Namespace: "../x"}, "netns"},
		{Selector{Device: "v0", Peers: []string{"192.0.2.300"}}, "dst"},
		{Selector{Device: "v0", Peers: []string{"192.0.2.5/24"}}, "dst"},
		{Selector{Device: "v0", Peers: []string{"0.0.0.0"}}, "dst"},
		{Selector{Device: "v0", Peers: []string{"fe80::1%v0"}}, "dst"},
		{Selector{Device: "v0", Peers: []string{""}}, "dst"},
		{Selector{Device: "v0", Peers: []string{"a..b"}}, "dst"},
		{Selector{Device: "v0", Peers: []string{"-a.b"}}, "dst"},
		{Selector{Device: "v0", Peers: []string{"10.0.0.1:80"}}, "dst"},
		{Selector{Device: "v0", Peers: []string{"10.0.0.1/33"}}, "dst"},
		{Selector{Device: "v0", Locals: []string{"x/24"}, ExcludePeers: []string{"300.1"}}, "src exclude-dst"},
		{Selector{Device: "v0", PeerPorts: []Ports{{}}, LocalPorts: []Ports{{5, 4}}, ExcludePorts: []Ports{{0, 4}}}, "port src-port exclude-port"},
		{Selector{Device: "v0", Protocol: 1, PeerPorts: []Ports{Port(80)}}, "port"},
		{Selector{Device: "v0", Control: true, Protocol: 6}, "control"},
		{Selector{Device: "v0", FlagsSet: 2}, "tcp-flags"},
		{Selector{Device: "v0", Protocol: 17, FlagsClear: 2}, "tcp-flags"},
		{Selector{Device: "v0", Protocol: 6, FlagsSet: 2, FlagsClear: 2}, "tcp-flags"},
		{Selector{Device: "v0", Peers: make([]string, 65)}, "dst"},
		{Selector{Device: "v0", PeerPorts: make([]Ports, 65)}, "port"},
	} {
		err := c.selector.Validate()
		var fields []string
		for line := range strings.Lines(fmt.Sprint(err)) {
			field, _, _ := strings.Cut(strings.TrimSuffix(strings.Fields(line)[0], ":"), " ")
			fields = append(fields, field)
		}
		if got := strings.Join(fields, " "); got != c.fields || !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%+v: %v\nfields %q, want %q", c.selector, err, got, c.fields)
		}
	}
}

// hosts is a name server.
func hosts(known map[string]string) Lookup {
	return func(_ context.Context, name string) ([]netip.Addr, error) {
		text, ok := known[name]
		if !ok {
			return nil, errors.New("no such host")
		}
		var all []netip.Addr
		for a := range strings.FieldsSeq(text) {
			all = append(all, netip.MustParseAddr(a))
		}
		return all, nil
	}
}

func TestMatchOfSelector(t *testing.T) {
	dns := hosts(map[string]string{
		"db":   "2001:db8::10 192.0.2.11 192.0.2.10 192.0.2.11",
		"six":  "2001:db8::6",
		"none": "",
		"old":  "::ffff:192.0.2.9",
	})
	for name, c := range map[string]struct {
		selector Selector
		want     []string // of the match's String, "or" by "or"
		reverse  string
	}{
		"whole device": {Selector{}, []string{"all packets"}, "all packets"},
		"whole device with control packets": {
			Selector{Control: true}, []string{"all packets, ARP and neighbour discovery too"}, "all packets, ARP and neighbour discovery too",
		},
		"a port covers both families": {
			Selector{PeerPorts: []Ports{Port(5432)}}, []string{"to port 5432"}, "from port 5432",
		},
		"an IPv4 address covers IPv4 alone": {
			Selector{Protocol: 6, Peers: []string{"192.0.2.10"}, PeerPorts: []Ports{Port(80)}},
			[]string{"tcp to 192.0.2.10/32 to port 80"}, "tcp from 192.0.2.10/32 from port 80",
		},
		"a name has both families, each address once and in order": {
			Selector{Protocol: 6, Peers: []string{"db"}, PeerPorts: []Ports{Port(80)}},
			[]string{"tcp to 192.0.2.10/32 to port 80", "tcp to 192.0.2.11/32 to port 80", "tcp to 2001:db8::10/128 to port 80"},
			"tcp from 192.0.2.10/32 from port 80 or tcp from 192.0.2.11/32 from port 80 or tcp from 2001:db8::10/128 from port 80",
		},
		"families are not mixed": {
			Selector{Peers: []string{"db"}, Locals: []string{"2001:db8::1"}},
			[]string{"from 2001:db8::1/128 to 2001:db8::10/128"}, "from 2001:db8::10/128 to 2001:db8::1/128",
		},
		"icmp is IPv4's": {Selector{Protocol: 1, Peers: []string{"db"}}, []string{"icmp to 192.0.2.10/32", "icmp to 192.0.2.11/32"}, ""},
		"mapped addresses": {
			Selector{Peers: []string{"::ffff:192.0.2.8", "old", "::ffff:192.0.2.0/120"}},
			[]string{"to 192.0.2.8/32", "to 192.0.2.9/32", "to 192.0.2.0/24"}, "",
		},
		"every pair": {
			Selector{Peers: []string{"10.0.0.3", "10.0.0.4"}, Locals: []string{"10.0.0.1", "10.0.0.2"}},
			[]string{"from 10.0.0.1/32 to 10.0.0.3/32", "from 10.0.0.2/32 to 10.0.0.3/32", "from 10.0.0.1/32 to 10.0.0.4/32", "from 10.0.0.2/32 to 10.0.0.4/32"}, "",
		},
		"both ends' ports": {
			Selector{Protocol: 17, PeerPorts: []Ports{Port(53), {8000, 8100}}, LocalPorts: []Ports{Port(5)}},
			[]string{"udp from port 5 to port 53", "udp from port 5 to port 8000-8100"}, "",
		},
		"exclusions": {
			Selector{Peers: []string{"192.0.2.0/24"}, ExcludePeers: []string{"192.0.2.7"}, ExcludePorts: []Ports{Port(22), Port(9526)}},
			[]string{"to 192.0.2.0/24, but not to 192.0.2.7/32", "from port 22", "to port 22", "from port 9526", "to port 9526"},
			"from 192.0.2.0/24, but not from 192.0.2.7/32 or to port 22 or from port 22 or to port 9526 or from port 9526",
		},
		"flags are those of the packet itself, both ways": {
			Selector{Protocol: 6, PeerPorts: []Ports{Port(80)}, FlagsSet: 2, FlagsClear: 16},
			[]string{"tcp flags syn,!ack to port 80"}, "tcp flags syn,!ack from port 80",
		},
		"twice is once": {Selector{Peers: []string{"192.0.2.1", "192.0.2.1/32"}}, []string{"to 192.0.2.1/32"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.selector.Device = "v0"
			if err := c.selector.Validate(); err != nil {
				t.Fatal(err)
			}
			m, err := c.selector.Match(t.Context(), dns)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, strings.Split(m.String(), " or ")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := m.Reverse().String(); c.reverse != "" && got != c.reverse {
				t.Errorf("reverse %q, want %q", got, c.reverse)
			}
		})
	}
}

func TestMatchIsRefused(t *testing.T) {
	dns := hosts(map[string]string{"none": "", "six": "2001:db8::6"})
	many := Selector{Device: "v0"}
	for i := range 9 {
		many.Peers = append(many.Peers, fmt.Sprintf("10.0.0.%d", i+1))
		many.PeerPorts = append(many.PeerPorts, Port(uint16(i+1)))
	}
	// What four full lists would make is refused before it is made.
	full := Selector{Device: "v0"}
	for i := range maxEntries {
		full.Peers, full.Locals = append(full.Peers, fmt.Sprintf("10.0.0.%d", i+1)), append(full.Locals, fmt.Sprintf("10.0.1.%d", i+1))
		full.PeerPorts, full.LocalPorts = append(full.PeerPorts, Port(uint16(i+1))), append(full.LocalPorts, Port(uint16(i+1)))
	}
	for _, c := range []struct {
		selector Selector
		lookup   Lookup
		want     string
	}{
		{Selector{Device: "v0", Peers: []string{"gone.example"}}, dns, `look up host "gone.example": no such host`},
		{Selector{Device: "v0", Peers: []string{"none"}}, dns, `look up host "none": it has no address`},
		{Selector{Device: "v0", Peers: []string{"six"}}, nil, `look up host "six": host names are looked up by the agent only`},
		{Selector{Device: "v0", Peers: []string{"six"}, Locals: []string{"10.0.0.1"}}, dns, "nothing is selected"},
		{Selector{Device: "v0", Peers: []string{"10.0.0.1"}, Protocol: 58}, dns, "nothing is selected"},
		{many, dns, "at most 64 flows, not 81"},
		{full, dns, "at most 64 flows, not 16777216"},
	} {
		m, err := c.selector.Match(t.Context(), c.lookup)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, %v, want %q", c.selector, m, err, c.want)
		}
	}
}

func TestSelectorInWords(t *testing.T) {
	s := Selector{
		Namespace: "blue", Device: "v0", Protocol: 6, Peers: []string{"192.0.2.0/24", "db"}, PeerPorts: []Ports{Port(80), {8000, 8100}},
		Locals: []string{"10.0.0.2"}, LocalPorts: []Ports{Port(5)}, ExcludePeers: []string{"192.0.2.7"}, ExcludePorts: []Ports{Port(22)},
		FlagsSet: 2, FlagsClear: 16,
	}
	want := "v0@blue tcp flags syn,!ack dst 192.0.2.0/24,db port 80,8000-8100 src 10.0.0.2 src-port 5 exclude-dst 192.0.2.7 exclude-port 22"
	if got := s.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !s.NeedsLookup() {
		t.Error("a host name needs no lookup")
	}
	s.Peers = s.Peers[:1]
	if s.NeedsLookup() {
		t.Error("addresses need a lookup")
	}
	if got := (Selector{Device: "v0", Control: true}).String(); got != "v0 with control packets" {
		t.Errorf("got %q", got)
	}
}
