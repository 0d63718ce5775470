package model

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/qdisc"
)

const ms = time.Millisecond

func TestPacket(t *testing.T) {
	at := func(due time.Duration) Copy { return Copy{Due: int64(due), Bit: -1} }
	ahead := Copy{Ahead: true, Bit: -1}
	for _, tt := range []struct {
		name   string
		n      qdisc.Netem
		queued int
		want   []Verdict // of packets that come in at 0
	}{
		{"nothing", qdisc.Netem{}, 0, []Verdict{{Count: 1, Copies: [2]Copy{at(0)}}}},
		{"delay", qdisc.Netem{Delay: 5 * ms}, 0, []Verdict{{Count: 1, Copies: [2]Copy{at(5 * ms)}, Delayed: 1}}},
		{"loss", qdisc.Netem{Loss: 100}, 0, []Verdict{{Lost: 1}}},
		{"duplicate", qdisc.Netem{Duplicate: 100, Delay: ms}, 0, []Verdict{
			{Count: 2, Copies: [2]Copy{at(ms), at(ms)}, Duplicated: 1, Delayed: 2},
		}},
		// The loss takes one of the two, and the other goes on without a further draw.
		{"loss and duplicate", qdisc.Netem{Duplicate: 100, Loss: 100}, 0, []Verdict{
			{Count: 1, Copies: [2]Copy{at(0)}, Duplicated: 1, Lost: 1},
		}},
		{"full", qdisc.Netem{Delay: ms, Limit: 3}, 3, []Verdict{{Overflow: 1}}},
		{"not full", qdisc.Netem{Delay: ms, Limit: 3}, 2, []Verdict{{Count: 1, Copies: [2]Copy{at(ms)}, Delayed: 1}}},
		{"full and duplicate", qdisc.Netem{Duplicate: 100, Limit: 3}, 3, []Verdict{{Overflow: 2, Duplicated: 1}}},
		{"lost before full", qdisc.Netem{Loss: 100, Limit: 1}, 1, []Verdict{{Lost: 1}}},
		{"reorder", qdisc.Netem{Delay: ms, Reorder: 100}, 0, []Verdict{
			{Count: 1, Copies: [2]Copy{ahead}, Reordered: 1},
			{Count: 1, Copies: [2]Copy{ahead}, Reordered: 1},
		}},
		{"gap", qdisc.Netem{Delay: ms, Reorder: 100, Gap: 3}, 0, []Verdict{
			{Count: 1, Copies: [2]Copy{at(ms)}, Delayed: 1},
			{Count: 1, Copies: [2]Copy{at(ms)}, Delayed: 1},
			{Count: 1, Copies: [2]Copy{ahead}, Reordered: 1},
			{Count: 1, Copies: [2]Copy{at(ms)}, Delayed: 1},
			{Count: 1, Copies: [2]Copy{at(ms)}, Delayed: 1},
			{Count: 1, Copies: [2]Copy{ahead}, Reordered: 1},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := New(tt.n)
			for i, want := range tt.want {
				if diff := cmp.Diff(want, m.Packet(0, 100, tt.queued, false)); diff != "" {
					t.Errorf("packet %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

func TestMark(t *testing.T) {
	for _, tt := range []struct {
		name     string
		n        qdisc.Netem
		markable bool
		want     Verdict
	}{
		{"marked", qdisc.Netem{Loss: 100, ECN: true}, true, Verdict{Count: 1, Copies: [2]Copy{{Bit: -1, Mark: true}}}},
		{"cannot be marked", qdisc.Netem{Loss: 100, ECN: true}, false, Verdict{Lost: 1}},
		{"not asked for", qdisc.Netem{Loss: 100}, true, Verdict{Lost: 1}},
		{"no loss", qdisc.Netem{Delay: ms, Loss: 0.0001, ECN: true, Seed: 1}, true, Verdict{Count: 1, Copies: [2]Copy{{Due: int64(ms), Bit: -1}}, Delayed: 1}},
		{"the copy too", qdisc.Netem{Loss: 100, Duplicate: 100, ECN: true}, true, Verdict{Count: 2, Duplicated: 1, Copies: [2]Copy{{Bit: -1, Mark: true}, {Bit: -1, Mark: true}}}},
		{"a chain", qdisc.Netem{GilbertElliott: qdisc.GilbertElliott{P: 1, LossGood: 100}, ECN: true}, true, Verdict{Count: 1, Copies: [2]Copy{{Bit: -1, Mark: true}}}},
		{"full", qdisc.Netem{Loss: 100, ECN: true, Limit: 1}, true, Verdict{Overflow: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := New(tt.n)
			queued := 0
			if tt.n.Limit == 1 {
				queued = 1
			}
			if diff := cmp.Diff(tt.want, m.Packet(0, 100, queued, tt.markable)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// within fails outside the two-sided 99.99 % bound of n draws of probability p.
func within(t *testing.T, what string, got, n int, p float64) {
	t.Helper()
	mean, dev := float64(n)*p, math.Sqrt(float64(n)*p*(1-p))
	if math.Abs(float64(got)-mean) > 3.89*dev {
		t.Errorf("%s: %d of %d, want %.0f +- %.0f", what, got, n, mean, 3.89*dev)
	}
}

const packets = 200_000

func sum(n qdisc.Netem) (v Verdict, delays []int64) {
	m := New(n)
	for range packets {
		one := m.Packet(0, 100, 0, false)
		v.Count += one.Count
		v.Lost += one.Lost
		v.Overflow += one.Overflow
		v.Duplicated += one.Duplicated
		v.Corrupted += one.Corrupted
		v.Reordered += one.Reordered
		v.Delayed += one.Delayed
		for _, c := range one.Copies[:one.Count] {
			if !c.Ahead {
				delays = append(delays, c.Due)
			}
		}
	}
	return v, delays
}

func TestShares(t *testing.T) {
	for seed := range uint64(3) {
		v, _ := sum(qdisc.Netem{Loss: 20, Seed: seed})
		within(t, "lost", v.Lost, packets, .2)
		v, _ = sum(qdisc.Netem{Duplicate: 5, Seed: seed})
		within(t, "duplicated", v.Duplicated, packets, .05)
		if v.Count != packets+v.Duplicated {
			t.Errorf("%d sent, want %d", v.Count, packets+v.Duplicated)
		}
		v, _ = sum(qdisc.Netem{Corrupt: 1, Seed: seed})
		within(t, "corrupted", v.Corrupted, packets, .01)
		v, _ = sum(qdisc.Netem{Delay: ms, Reorder: 25, Seed: seed})
		within(t, "reordered", v.Reordered, packets, .25)
		// One that is not reordered lets the counter run on, so with a gap of 4 the
		// expected distance is 3 + 1/p.
		v, _ = sum(qdisc.Netem{Delay: ms, Reorder: 50, Gap: 4, Seed: seed})
		within(t, "reordered with a gap", v.Reordered, packets, 1/(3+1/.5))
		// A copy is lost like its original: of the 2 of a duplicated packet, the loss
		// of the original takes one, and each copy that is made draws once more.
		v, _ = sum(qdisc.Netem{Loss: 20, Duplicate: 50, Seed: seed})
		within(t, "lost with duplicates", v.Lost, packets+v.Duplicated*8/10, .2)
		if v.Count != packets+v.Duplicated-v.Lost {
			t.Errorf("%d sent of %d, with %d duplicated and %d lost", v.Count, packets, v.Duplicated, v.Lost)
		}
	}
}

// netem's correlation draws nearer to the middle, so fewer are lost: the average of
// draws with weights .75 and .25 is below 20 % in about 10 % of cases.
func TestCorrelation(t *testing.T) {
	v, _ := sum(qdisc.Netem{Loss: 20, LossCorrelation: 25, Seed: 1})
	if got := float64(v.Lost) / packets; got < .09 || got > .16 {
		t.Errorf("lost %.3f", got)
	}
	// Losses come together: after a loss the next one is likelier.
	m := New(qdisc.Netem{Loss: 20, LossCorrelation: 25, Seed: 1})
	var after, lost, both int
	for range packets {
		now := m.Packet(0, 100, 0, false).Lost
		both += after & now
		lost += now
		after = now
	}
	if p, q := float64(both)/float64(lost), float64(lost)/packets; p < 1.5*q {
		t.Errorf("lost after a loss %.3f, lost at all %.3f", p, q)
	}
}

func moments(delays []int64) (mean, dev float64, least, most int64) {
	least, most = math.MaxInt64, math.MinInt64
	for _, d := range delays {
		mean += float64(d)
		least, most = min(least, d), max(most, d)
	}
	mean /= float64(len(delays))
	for _, d := range delays {
		dev += (float64(d) - mean) * (float64(d) - mean)
	}
	return mean, math.Sqrt(dev / float64(len(delays))), least, most
}

func TestJitter(t *testing.T) {
	const delay, jitter = 50 * ms, 10 * ms
	for _, tt := range []struct {
		shape     qdisc.Distribution
		mean, dev float64 // in jitters around the delay
		most      time.Duration
	}{
		{"", 0, 1 / math.Sqrt(3), jitter},
		{qdisc.Uniform, 0, 1 / math.Sqrt(3), jitter},
		{qdisc.Normal, 0, 1, 4 * jitter},
	} {
		_, delays := sum(qdisc.Netem{Delay: delay, Jitter: jitter, Distribution: tt.shape, Seed: 5})
		mean, dev, least, most := moments(delays)
		// The mean of n draws lies within 3.89 deviations / sqrt(n) in 9,999 of 10,000.
		if want, bound := float64(delay)+tt.mean*float64(jitter), 3.89*dev/math.Sqrt(packets); math.Abs(mean-want) > bound+1000 {
			t.Errorf("%q: mean %.0f, want %.0f +- %.0f", tt.shape, mean, want, bound)
		}
		if want := tt.dev * float64(jitter); math.Abs(dev-want) > .02*want {
			t.Errorf("%q: deviation %.0f, want %.0f", tt.shape, dev, want)
		}
		if least < int64(delay-tt.most) || most > int64(delay+tt.most) {
			t.Errorf("%q: %s to %s", tt.shape, time.Duration(least), time.Duration(most))
		}
	}
	for _, shape := range []qdisc.Distribution{qdisc.Pareto, qdisc.ParetoNormal} {
		_, delays := sum(qdisc.Netem{Delay: delay, Jitter: jitter, Distribution: shape, Seed: 5})
		_, _, least, most := moments(delays)
		if up, down := most-int64(delay), int64(delay)-least; up < 2*down {
			t.Errorf("%s: no long tail: %s below, %s above", shape, time.Duration(down), time.Duration(up))
		}
	}
}

func TestSeed(t *testing.T) {
	run := func(n qdisc.Netem) string {
		m := New(n)
		var s string
		for i := range 200 {
			s += fmt.Sprint(m.Packet(int64(i), 100, 0, false))
		}
		return s
	}
	n := qdisc.Netem{Delay: 9 * ms, Jitter: 3 * ms, Loss: 10, Duplicate: 10, Corrupt: 10, Reorder: 10, Seed: 1}
	a, b := run(n), run(n)
	if a != b {
		t.Error("the same seed gave another run")
	}
	n.Seed = 2
	if run(n) == a {
		t.Error("another seed gave the same run")
	}
	// Another impairment does not shift the losses.
	lost := func(n qdisc.Netem) (s string) {
		m := New(n)
		for range 200 {
			s += fmt.Sprint(m.Packet(0, 100, 0, false).Lost)
		}
		return s
	}
	if lost(qdisc.Netem{Loss: 10, Seed: 1}) != lost(qdisc.Netem{Loss: 10, Delay: ms, Jitter: ms, Corrupt: 5, Seed: 1}) {
		t.Error("a jitter shifted the losses")
	}
}

func TestFlippedBits(t *testing.T) {
	const size = 64
	m := New(qdisc.Netem{Corrupt: 100, Seed: 1})
	seen := map[int]int{}
	for range packets {
		bit := m.Packet(0, size, 0, false).Copies[0].Bit
		if bit < 0 || bit >= 8*size {
			t.Fatalf("bit %d of %d", bit, 8*size)
		}
		seen[bit]++
	}
	if len(seen) != 8*size {
		t.Errorf("%d of %d bits were ever flipped", len(seen), 8*size)
	}
}

func TestFrames(t *testing.T) {
	for _, tt := range []struct {
		n    qdisc.Netem
		want bool
	}{
		{qdisc.Netem{}, false},
		{qdisc.Netem{Delay: ms, Jitter: ms, DelayCorrelation: 1, Distribution: qdisc.Normal}, false},
		{qdisc.Netem{Delay: ms, Slot: qdisc.Slot{MinDelay: ms}}, false},
		{qdisc.Netem{Slot: qdisc.Slot{MinDelay: ms, Packets: 2}}, true},
		{qdisc.Netem{Slot: qdisc.Slot{MinDelay: ms, Bytes: 2000}}, true},
		{qdisc.Netem{Delay: ms, Loss: 1}, true},
		{qdisc.Netem{Delay: ms, Reorder: 1}, true},
		{qdisc.Netem{Corrupt: 1}, true},
		{qdisc.Netem{Duplicate: 1}, true},
	} {
		if got := Frames(tt.n); got != tt.want {
			t.Errorf("%+v: %v", tt.n, got)
		}
	}
}

func BenchmarkPacket(b *testing.B) {
	m := New(qdisc.Netem{Delay: 9 * ms, Jitter: 3 * ms, Loss: 10, Duplicate: 1, Corrupt: 1})
	b.ReportAllocs()
	for b.Loop() {
		m.Packet(0, 100, 0, false)
	}
}
