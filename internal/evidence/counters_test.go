package evidence

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/probe"
)

func TestCountersParse(t *testing.T) {
	tests := []struct {
		name, text string
		want       Counters
		err        bool
	}{
		{"both files", "Ip: Forwarding\nIp: 1\nTcp: MaxConn RetransSegs\nTcp: -1 9\n" +
			"TcpExt: TCPTimeouts TCPLossProbes TCPSynRetrans TCPFastRetrans TCPSlowStartRetrans TCPRetransFail\nTcpExt: 1 2 3 4 5 6\n",
			Counters{Segments: 9, Timeouts: 1, LossProbes: 2, SYNs: 3, Fast: 4, SlowStart: 5, Failed: 6}, false},
		{"an older kernel", "TcpExt: TCPTimeouts\nTcpExt: 7\n", Counters{Timeouts: 7}, false},
		{"no values", "Tcp: RetransSegs\n", Counters{}, true},
		{"one value too few", "Tcp: RetransSegs InErrs\nTcp: 1\n", Counters{}, true},
		{"another line's values", "Tcp: RetransSegs\nUdp: 1\n", Counters{}, true},
		{"not a number", "Tcp: RetransSegs\nTcp: x\n", Counters{}, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got Counters
			err := got.parse(strings.NewReader(test.text))
			if (err != nil) != test.err {
				t.Fatalf("error %v", err)
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("counters (-want +got):\n%s", d)
			}
		})
	}
}

func TestCountersCauses(t *testing.T) {
	before := Counters{Segments: 5, LossProbes: 1, SYNs: 1}
	after := Counters{Segments: 25, LossProbes: 9, SYNs: 4, Fast: 2}
	want := map[probe.Cause]int{probe.SYNRetransmit: 3, probe.TLP: 8, probe.FastRetransmit: 2, probe.RTO: 7}
	if d := cmp.Diff(want, after.Since(before).Causes()); d != "" {
		t.Errorf("causes (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[probe.Cause]int{}, Counters{}.Causes()); d != "" {
		t.Errorf("causes of nothing (-want +got):\n%s", d)
	}
}
