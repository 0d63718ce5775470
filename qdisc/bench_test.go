package qdisc

import (
	"testing"
	"time"
)

var benched = []struct {
	name string
	n    Netem
}{
	{"loss", Netem{Loss: 20}},
	{"all", Netem{
		Delay: 100 * time.Millisecond, Jitter: 20 * time.Millisecond, DelayCorrelation: 25, GilbertElliott: GilbertElliott{P: 1, R: 10}, ECN: true,
		Duplicate: 1, Reorder: 25, Gap: 5, Corrupt: .1, Rate: 1250000, PacketOverhead: -14, CellSize: 53,
		Slot: Slot{MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}, Seed: 42,
	}},
	{"normal", Netem{Delay: 100 * time.Millisecond, Jitter: 20 * time.Millisecond, Distribution: Normal}},
}

func BenchmarkMarshalOptions(b *testing.B) {
	for _, c := range benched {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.n.MarshalOptions(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkUnmarshalOptions(b *testing.B) {
	for _, c := range benched {
		options, err := c.n.MarshalOptions()
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := UnmarshalOptions(options); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The encoder makes one allocation, for what it returns; the fields' names in an
// error cost nothing where there is none.
func TestMarshalAllocates(t *testing.T) {
	for _, c := range benched {
		if got := testing.AllocsPerRun(100, func() { _, _ = c.n.MarshalOptions() }); got > 1 {
			t.Errorf("%s: %v allocations, want 1", c.name, got)
		}
	}
}
