package target

import (
	"net/netip"
	"testing"
)

// A key has every word by which packets are selected.
func TestKeys(t *testing.T) {
	m := Match{
		Include: []Flow{
			{Protocol: 17, Destination: netip.MustParsePrefix("2001:db8::/32"), SourcePorts: Ports{1, 9}},
			{Protocol: 6, Source: netip.MustParsePrefix("192.0.2.1/32"), DestinationPorts: Port(80), FlagsSet: 2, FlagsClear: 16},
			{Protocol: 17, Destination: netip.MustParsePrefix("2001:db8::/32"), SourcePorts: Ports{1, 9}},
		},
		Exclude: []Flow{{}},
	}
	const flows = "+17,invalid Prefix,2001:db8::/32,1-9,any;6,192.0.2.1/32,invalid Prefix,any,80,syn,!ack -0,invalid Prefix,invalid Prefix,any,any false"
	for want, got := range map[string]string{
		flows:                       m.Key(),
		"+ - true":                  Match{Control: true}.Key(),
		"blue|7|3|egress|+ - false": Place{Namespace: "blue", Cookie: 7, Index: 3, Hook: Egress}.Key(),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
