package probe

import (
	"cmp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
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
	if d := gocmp.Diff(want, o, cmpopts.IgnoreUnexported(Outages{})); d != "" {
		t.Errorf("outages (-want +got):\n%s", d)
	}
	for i := range int64(200) {
		o.Ended(call(5000+10*i, 5001+10*i, Timeout, false))
		o.Ended(call(5001+10*i, 5002+10*i, OK, false))
	}
	if o.Count != 203 || len(o.List) != mostOutages {
		t.Errorf("%d outages, %d in the list; want 203 and %d", o.Count, len(o.List), mostOutages)
	}
}

// TestOutagesOfCallsAtATime: one outage is one, also where calls that were under way fail after
// its end, and a call that fails alone while others succeed is an outage for as long as that.
func TestOutagesOfCallsAtATime(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	type call struct {
		start, took int64
		class       Class
	}
	partition := func() (all []call) { // of 2 s, a call each 50 ms, each waits for 1 s
		for at := int64(0); at < 4000; at += 50 {
			if at < 2000 {
				all = append(all, call{at, 1000, Timeout})
			} else {
				all = append(all, call{at, 10, OK})
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		calls []call
		want  Outages
	}{
		"a partition": {partition(), Outages{Count: 1, List: []Outage{{StartNS: ms, Failed: 40, Network: f(2010), Success: f(2010)}}}},
		"single packets": {
			[]call{{0, 1000, Timeout}, {1, 1000, Timeout}, {2, 10, OK}, {20, 10, OK}, {500, 1000, Timeout}, {600, 10, OK}},
			Outages{Count: 2, List: []Outage{{StartNS: ms, Failed: 2, Network: f(12), Success: f(12)}, {StartNS: 501 * ms, Failed: 1, Network: f(110), Success: f(110)}}},
		},
		"the last one began last": {
			[]call{{0, 10, OK}, {100, 500, Timeout}},
			Outages{Count: 1, List: []Outage{{StartNS: 101 * ms, Failed: 1}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			slices.SortStableFunc(test.calls, func(a, b call) int { return cmp.Compare(a.start+a.took, b.start+b.took) })
			var o Outages
			for _, c := range test.calls {
				o.Ended(Sample{StartNS: (c.start + 1) * ms, EndNS: (c.start + c.took + 1) * ms, Class: c.class})
			}
			o.Finish()
			if d := gocmp.Diff(test.want, o, cmpopts.IgnoreUnexported(Outages{})); d != "" {
				t.Errorf("outages (-want +got):\n%s", d)
			}
		})
	}
}

// TestSuccessesAreBounded: what is kept of many successes is little, and what is found of old
// ones is later than it was, never earlier.
func TestSuccessesAreBounded(t *testing.T) {
	var g successes
	for at := range int64(100_000) {
		g.add(at*ms/5, at*ms/5+ms)
	}
	if len(g.kept) > mostSuccesses {
		t.Errorf("%d are kept", len(g.kept))
	}
	for _, from := range []int64{0, 15_000 * ms, 19_990*ms + 1, 19_999 * ms} {
		if end, ok := g.first(from); !ok || end < from+ms || from > 12_000*ms && end > from+3*ms {
			t.Errorf("the first from %d ms ended at %d ms, %v", from/ms, end/ms, ok)
		}
	}
	if _, ok := g.first(20_000 * ms); ok {
		t.Error("one that began after the last")
	}
}
