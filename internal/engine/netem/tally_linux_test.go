package netem

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/qdisc"
)

func TestTally(t *testing.T) {
	base := qdisc.Stats{Packets: 1000, Queued: 10, Drops: 4294967290, Requeues: 7}
	stats := qdisc.Stats{Packets: 1800, Queued: 30, Drops: 194, Requeues: 57} // 820 passed, 200 dropped, 50 ahead
	for name, c := range map[string]struct {
		n       qdisc.Netem
		want    fault.Counters
		missing []string
	}{
		"loss":    {qdisc.Netem{Loss: 20}, fault.Counters{Seen: 1020, Lost: 200}, nil},
		"delay":   {qdisc.Netem{Delay: 1}, fault.Counters{Seen: 1020, Overflow: 200, Delayed: 820}, nil},
		"reorder": {qdisc.Netem{Delay: 1, Reorder: 5}, fault.Counters{Seen: 1020, Overflow: 200, Delayed: 770, Reordered: 50}, nil},
		"both":    {qdisc.Netem{Delay: 2, Jitter: 1, Loss: 20}, fault.Counters{Seen: 1020, Lost: 200, Delayed: 820}, []string{"overflow", "reordered"}},
		"rewrite": {qdisc.Netem{Duplicate: 1, Corrupt: 1}, fault.Counters{Seen: 1020, Overflow: 200}, []string{"duplicated", "corrupted"}},
	} {
		tally := tally{base: base}
		if diff := cmp.Diff(c.want, tally.now(qdisc.State{Netem: c.n, Stats: stats})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.missing, missing(c.n)); diff != "" {
			t.Errorf("%s: missing (-want +got):\n%s", name, diff)
		}
	}
}

// A fault's counters go on through a change, and begin again after a clear.
func TestTallyThroughChanges(t *testing.T) {
	var y tally
	neutral, loss, delay := qdisc.Netem{}, qdisc.Netem{Loss: 20}, qdisc.Netem{Delay: time.Second}
	at := func(n qdisc.Netem, packets uint64, drops uint32) qdisc.State {
		return qdisc.State{Netem: n, Stats: qdisc.Stats{Packets: packets, Drops: drops}}
	}
	y.changed(at(neutral, 500, 0)) // loss is set
	y.changed(at(loss, 580, 20))   // changed to a delay
	got := y.now(at(delay, 590, 23))
	if want := (fault.Counters{Seen: 113, Lost: 20, Overflow: 3, Delayed: 10}); got != want {
		t.Errorf("after a change: %+v, want %+v", got, want)
	}
	y.changed(at(delay, 590, 23)) // cleared
	if y.sum != got {
		t.Errorf("after the clear: %+v, want %+v", y.sum, got)
	}
	y.changed(at(neutral, 700, 23)) // another fault
	if got, want := y.now(at(loss, 708, 25)), (fault.Counters{Seen: 10, Lost: 2}); got != want {
		t.Errorf("the next fault: %+v, want %+v", got, want)
	}
	if got, want := y.now(at(loss, 8, 2)), (fault.Counters{Seen: 10, Lost: 2}); got != want {
		t.Errorf("another qdisc: %+v, want %+v", got, want)
	}
}
