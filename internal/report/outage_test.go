package report

import (
	"testing"

	"netemd/probe"
)

func TestOutages(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	whole := probe.Outage{Failed: 3, Kept: 1, Network: f(3000), Success: f(3410)}
	brief := probe.Outage{Failed: 1, Network: f(20), Success: f(20)}
	for _, test := range []struct {
		all  *probe.Outages
		want string
	}{
		{nil, ""},
		{&probe.Outages{}, ""},
		{&probe.Outages{Count: 1, List: []probe.Outage{whole}}, "3 calls failed (1 on a kept connection); the network answered 3.00 s after the first of them began, and a call succeeded 410 ms later"},
		{&probe.Outages{Count: 1, List: []probe.Outage{brief}}, "1 call failed; a call succeeded 20 ms after the first of them began"},
		{&probe.Outages{Count: 2, List: []probe.Outage{brief, whole}}, "3 calls failed (1 on a kept connection); the network answered 3.00 s after the first of them began, and a call succeeded 410 ms later; the longest of 2 outages"},
		{&probe.Outages{Count: 1, List: []probe.Outage{{Failed: 1}}}, "1 call failed, and none succeeded until the run's end"},
		{&probe.Outages{Count: 1, List: []probe.Outage{{Failed: 2, Network: f(5)}}}, "2 calls failed; the network answered 5.0 ms after the first of them began, and no call succeeded until the run's end"},
		{&probe.Outages{Count: 3, List: []probe.Outage{brief, whole, {Failed: 2}}}, "3 calls failed (1 on a kept connection); the network answered 3.00 s after the first of them began, and a call succeeded 410 ms later; the longest of 3 outages; in the last of them 2 calls failed, and none succeeded until the run's end"},
	} {
		if got := Outages(test.all); got != test.want {
			t.Errorf("got  %q\nwant %q", got, test.want)
		}
	}
}
