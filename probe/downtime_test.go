package probe

import (
	"math"
	"testing"
)

// TestDowntimes: a call whose server was down for half of it waited for that, unless a
// retransmission says better. Times are in ms.
func TestDowntimes(t *testing.T) {
	for _, test := range []struct {
		name   string
		took   int64
		down   []Downtime
		events []Retransmission
		want   Cause
	}{
		{"for most of the call", 1000, []Downtime{{10_010 * ms, 10_900 * ms}}, nil, ServerDown},
		{"from before, and it goes on", 1000, []Downtime{{9_000 * ms, 0}}, nil, ServerDown},
		{"twice, half of it together", 1000, []Downtime{{9_000 * ms, 10_250 * ms}, {10_700 * ms, 10_950 * ms}}, nil, ServerDown},
		{"for less than half", 1000, []Downtime{{10_010 * ms, 10_500 * ms}}, nil, Unknown},
		{"before and after", 1000, []Downtime{{9_000 * ms, 10_000 * ms}, {11_000 * ms, 0}}, nil, Unknown},
		{"never", 1000, nil, nil, Unknown},
		{"beside a retransmission", 1000, []Downtime{{10_010 * ms, 10_900 * ms}}, []Retransmission{again(900, RTO)}, RTO},
		{"a fast call", 100, []Downtime{{10_000 * ms, 0}}, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := NewAttributor(Attribution{Traced: true, ClientCookie: clientCookie, ServerCookie: serverCookie})
			for _, e := range test.events {
				e.TimeNS += 10_000 * ms
				a.Event(e)
			}
			s := Sample{StartNS: 10_000 * ms, EndNS: (10_000 + test.took) * ms, Class: OK, Local: clientEnd, Remote: serverEnd, Reused: true}
			a.Add(s)
			a.Down(test.down)
			if got := a.Flush(math.MaxInt64)[0].Cause; got != test.want {
				t.Errorf("cause %q, want %q", got, test.want)
			}
		})
	}
}
