package match

import (
	"net/netip"
	"strings"
	"testing"

	"netemd/internal/target"
)

func TestValidate(t *testing.T) {
	p := netip.MustParsePrefix
	flows := func(n int) []target.Flow {
		out := make([]target.Flow, n)
		for i := range out {
			out[i].DestinationPorts = target.Port(uint16(i + 1))
		}
		return out
	}
	for _, tt := range []struct {
		name  string
		match target.Match
		// want are how the lines of the error begin.
		want []string
	}{
		{"zero", target.Match{}, nil},
		{"control", target.Match{Control: true, Exclude: flows(1)}, nil},
		{"ports of any protocol", target.Match{Include: flows(32), Exclude: flows(32)}, nil},
		{"mapped and IPv4", target.Match{Include: []target.Flow{{Source: p("::ffff:10.0.0.0/104"), Destination: p("10.0.0.0/8")}}}, nil},
		{"wide mapped is IPv6", target.Match{Include: []target.Flow{{Source: p("::ffff:0:0/64"), Destination: p("10.0.0.0/8")}}},
			[]string{"include[0]: source ::ffff:0.0.0.0/64 and destination 10.0.0.0/8 are of different families"}},
		{"too many", target.Match{Include: flows(32), Exclude: flows(33)}, []string{"flows: 65, want at most 64"}},
		{"control of a flow", target.Match{Control: true, Include: flows(1)}, []string{"control: "}},
		{"exclude all", target.Match{Exclude: []target.Flow{{}}}, []string{"exclude[0]: "}},
		{"exclude what is included", target.Match{Include: []target.Flow{{Source: p("10.0.0.0/8")}}, Exclude: []target.Flow{{Destination: p("::ffff:0:0/96")}}}, []string{"exclude: nothing is left"}},
		{"exclude one family", target.Match{Include: []target.Flow{{Protocol: 6}}, Exclude: []target.Flow{{Destination: p("0.0.0.0/0")}}}, nil},
		{"families", target.Match{Exclude: []target.Flow{{Source: p("10.0.0.0/8"), Destination: p("fd00::/8")}}}, []string{"exclude[0]: source 10.0.0.0/8"}},
		{"ports of ICMP", target.Match{Include: []target.Flow{{Protocol: 1, SourcePorts: target.Port(7)}}}, []string{"include[0].source_ports: protocol 1"}},
		{"range upside down", target.Match{Include: []target.Flow{{}, {SourcePorts: target.Ports{First: 9, Last: 8}}}}, []string{"include[1].source_ports: 9-8"}},
		{"range from 0", target.Match{Include: []target.Flow{{DestinationPorts: target.Ports{Last: 8}}}}, []string{"include[0].destination_ports: 0-8"}},
		{"extension header", target.Match{Include: []target.Flow{{Protocol: 44}}}, []string{"include[0].protocol: 44"}},
		{"flags of UDP", target.Match{Include: []target.Flow{{Protocol: 17, FlagsSet: 2}}}, []string{"include[0].flags: protocol 17"}},
		{"flags of any protocol", target.Match{Exclude: []target.Flow{{FlagsClear: 2}}}, []string{"exclude[0].flags: protocol 0"}},
		{"flags set and clear", target.Match{Include: []target.Flow{{Protocol: 6, FlagsSet: 3, FlagsClear: 2}}}, []string{"include[0].flags: syn cannot be"}},
		{"flags", target.Match{Include: []target.Flow{{Protocol: 6, FlagsSet: 2, FlagsClear: 16}}}, nil},
		{"prefix length", target.Match{Include: []target.Flow{{Source: netip.PrefixFrom(netip.MustParseAddr("10.0.0.1"), 33)}}}, []string{"include[0].source: 10.0.0.1"}},
		{"all at once", target.Match{Control: true, Include: []target.Flow{{Protocol: 47, SourcePorts: target.Ports{Last: 1}, DestinationPorts: target.Port(1)}}},
			[]string{"control: ", "include[0].source_ports: 0-1", "include[0].source_ports: protocol 47", "include[0].destination_ports: protocol 47"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Validate(tt.match)
			var lines []string
			if err != nil {
				lines = strings.Split(err.Error(), "\n")
			}
			if len(lines) != len(tt.want) {
				t.Fatalf("%v: want %d errors", err, len(tt.want))
			}
			for i, line := range lines {
				if !strings.HasPrefix(line, tt.want[i]) {
					t.Errorf("%q does not begin with %q", line, tt.want[i])
				}
			}
			if _, err := Classifier(tt.match, 14); (err == nil) != (len(tt.want) == 0) {
				t.Errorf("Classifier: %v", err)
			}
		})
	}
}

func TestFamily(t *testing.T) {
	p := netip.MustParsePrefix
	for _, tt := range []struct {
		match target.Match
		want  int
	}{
		{target.Match{}, 0},
		{target.Match{Exclude: []target.Flow{{Source: p("0.0.0.0/0")}}}, 0},
		{target.Match{Include: []target.Flow{{Source: p("fd00::/8")}, {Destination: p("::1/128")}}}, 6},
		{target.Match{Include: []target.Flow{{Source: p("::ffff:10.0.0.0/104")}, {Destination: p("10.0.0.0/8")}}}, 4},
		{target.Match{Include: []target.Flow{{Source: p("fd00::/8")}, {Destination: p("10.0.0.0/8")}}}, 0},
		{target.Match{Include: []target.Flow{{Source: p("fd00::/8")}, {Protocol: 6}}}, 0},
	} {
		if got := Family(tt.match); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.match, got, tt.want)
		}
	}
}
