package netemtest

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/qdisc"
)

// Whatever was there before, only what was said is left.
func TestWhole(t *testing.T) {
	before := qdisc.Netem{
		Delay: time.Second, Jitter: time.Millisecond, DelayCorrelation: 3, Distribution: qdisc.Custom, Samples: "abcd", Loss: 5, LossCorrelation: 2,
		ECN: true, Duplicate: 1, DuplicateCorrelation: 2, Reorder: 3, ReorderCorrelation: 4, Gap: 5, Corrupt: 6, CorruptCorrelation: 7,
		Rate: 1e6, PacketOverhead: -3, CellSize: 48, CellOverhead: 5, Slot: qdisc.Slot{MinDelay: time.Second},
	}
	for _, n := range []qdisc.Netem{
		{Loss: 20}, {Delay: time.Second, Distribution: qdisc.Normal, Jitter: 1}, {GilbertElliott: qdisc.GilbertElliott{P: 1, R: 2}},
		{Rate: 1e6, CellSize: 48, Limit: 7, Seed: 9}, before,
	} {
		if diff := cmp.Diff(n, whole(n).Apply(before)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}
