package probe

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestOutages: what began during an outage ends it, and what had begun before does not.
func TestOutages(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	call := func(start, end int64, c Class, reused bool) Sample {
		return Sample{StartNS: start * ms, EndNS: end * ms, Class: c, Reused: reused}
	}
	var o Outages
	took := func(s Sample, began bool) {
		t.Helper()
		if got := o.Ended(s); got != began {
			t.Errorf("the call of %d ms: began %v, want %v", s.StartNS/ms, got, began)
		}
	}
	took(call(0, 10, OK, false), false)
	took(call(10, 20, Server, true), false) // the server's own word is an answer
	took(call(30, 40, Rejected, false), false)
	if !o.Over() {
		t.Error("nothing is wrong, and the network is asked")
	}
	took(call(100, 600, Timeout, true), true)
	took(call(95, 610, OK, true), false) // had begun before: it was under way on a connection that lived
	took(call(600, 1100, Timeout, false), false)
	if o.Over() {
		t.Error("the network is not asked while calls fail")
	}
	o.Answered(1200 * ms)
	o.Answered(1300 * ms)
	if !o.Over() {
		t.Error("the network has answered, and is asked")
	}
	degraded := call(1150, 1150, OK, false)
	degraded.Degraded = "cached"
	took(degraded, false)
	took(call(1100, 1600, Reset, true), false)
	took(call(1600, 1610, OK, false), false)
	took(call(2000, 2100, Refused, false), true)
	took(call(2100, 2110, OK, false), false)
	took(call(3000, 3100, EOF, true), true)
	o.Finish()
	o.Finish()
	want := Outages{Count: 3, List: []Outage{
		{StartNS: 100 * ms, Failed: 3, Kept: 2, Network: f(1100), Success: f(1510)},
		{StartNS: 2000 * ms, Failed: 1, Network: f(110), Success: f(110)},
		{StartNS: 3000 * ms, Failed: 1, Kept: 1},
	}}
	if d := cmp.Diff(want, o, cmpopts.IgnoreUnexported(Outages{})); d != "" {
		t.Errorf("outages (-want +got):\n%s", d)
	}
	for range 200 {
		o.Ended(call(5000, 5001, Timeout, false))
		o.Ended(call(5001, 5002, OK, false))
	}
	if o.Count != 203 || len(o.List) != mostOutages {
		t.Errorf("%d outages, %d in the list; want 203 and %d", o.Count, len(o.List), mostOutages)
	}
}
