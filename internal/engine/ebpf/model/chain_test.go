package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/qdisc"
)

func TestChainSteps(t *testing.T) {
	// The bounds are 2^32-1 times the shares, and a number that equals one goes
	// nowhere.
	const p10, p30 = 429496730, 1288490188
	states := qdisc.Netem{LossState: qdisc.LossState{P13: 20, P31: 20, P32: 10, P23: 40, P14: 10}}
	bursts := qdisc.Netem{GilbertElliott: qdisc.GilbertElliott{P: 10, R: 30, LossBad: 70, LossGood: 10}}
	for _, tt := range []struct {
		name  string
		n     qdisc.Netem
		state uint32
		draws []uint32
		lost  bool
		want  uint32
	}{
		{"gap, stays", states, SentInGap, []uint32{math.MaxUint32}, false, SentInGap},
		{"gap, isolated loss", states, SentInGap, []uint32{p10 - 1}, true, LostInGap},
		{"gap, at the first bound", states, SentInGap, []uint32{p10}, false, SentInGap},
		{"gap, burst", states, SentInGap, []uint32{p10 + 1}, true, LostInBurst},
		{"gap, below the second bound", states, SentInGap, []uint32{p30 - 2}, true, LostInBurst},
		{"gap, above the second bound", states, SentInGap, []uint32{p30 + 2}, false, SentInGap},
		{"isolated loss ends", states, LostInGap, []uint32{0}, false, SentInGap},
		{"burst, sent", states, LostInBurst, []uint32{p10 - 1}, false, SentInBurst},
		{"burst, at the first bound", states, LostInBurst, []uint32{p10}, false, LostInBurst},
		{"burst, ends", states, LostInBurst, []uint32{p10 + 1}, false, SentInGap},
		{"burst, goes on", states, LostInBurst, []uint32{p30 + 2}, true, LostInBurst},
		{"sent in a burst, lost again", states, SentInBurst, []uint32{4 * (p10 - 1)}, true, LostInBurst},
		{"sent in a burst, stays", states, SentInBurst, []uint32{4*p10 + 1}, false, SentInBurst},

		{"good, stays", bursts, Good, []uint32{p10, p10}, false, Good},
		{"good, lost", bursts, Good, []uint32{p10, p10 - 1}, true, Good},
		{"good, becomes bad", bursts, Good, []uint32{p10 - 1, p10}, false, Bad},
		{"bad, lost", bursts, Bad, []uint32{p30, p30 + 2}, true, Bad},
		{"bad, sent", bursts, Bad, []uint32{p30, p30 - 2}, false, Bad},
		{"bad, becomes good, but lost", bursts, Bad, []uint32{0, math.MaxUint32}, true, Good},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := NewChain(tt.n)
			c.State = tt.state
			draws := tt.draws
			got := c.Lost(func() uint32 { d := draws[0]; draws = draws[1:]; return d })
			if got != tt.lost || c.State != tt.want || len(draws) != 0 {
				t.Errorf("lost %t, state %d, %d numbers left; want %t, %d", got, c.State, len(draws), tt.lost, tt.want)
			}
		})
	}
}

func TestChainApply(t *testing.T) {
	for _, n := range []qdisc.Netem{
		{},
		{LossState: qdisc.LossState{P13: 1, P31: 20, P32: 3, P23: 50, P14: 0.1}},
		{GilbertElliott: qdisc.GilbertElliott{P: 1, R: 10}},
		{GilbertElliott: qdisc.GilbertElliott{P: 1, R: 10, LossBad: 75, LossGood: 0.01}},
	} {
		got := n
		got.LossState, got.GilbertElliott = qdisc.LossState{P13: 9}, qdisc.GilbertElliott{P: 9}
		NewChain(n).Apply(&got)
		if diff := cmp.Diff(n.Normalize(), got.Normalize()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// hidden is a Markov chain whose states lose packets: what a loss model is in closed
// form.
type hidden struct {
	step [][]float64 // from, to
	loss []float64
}

func hiddenOf(n qdisc.Netem) hidden {
	if s := n.LossState; s != (qdisc.LossState{}) {
		p13, p31, p32, p23, p14 := float64(s.P13)/100, float64(s.P31)/100, float64(s.P32)/100, float64(s.P23)/100, float64(s.P14)/100
		return hidden{[][]float64{
			{1 - p13 - p14, 0, p14, p13},
			{0, 1 - p23, 0, p23},
			{1, 0, 0, 0},
			{p31, p32, 0, 1 - p31 - p32},
		}, []float64{0, 0, 1, 1}}
	}
	g := n.Normalize().GilbertElliott
	p, r := float64(g.P)/100, float64(g.R)/100
	return hidden{[][]float64{{1 - p, p}, {r, 1 - r}}, []float64{float64(g.LossGood) / 100, float64(g.LossBad) / 100}}
}

// after is the distribution one packet later.
func (h hidden) after(d []float64) []float64 {
	out := make([]float64, len(d))
	for i, p := range d {
		for j, q := range h.step[i] {
			out[j] += p * q
		}
	}
	return out
}

// moments are the share of lost packets in the long run, the deviation of n packets'
// share, and how long a run of losses is on average.
func (h hidden) moments(n int) (share, dev, burst float64) {
	stationary := make([]float64, len(h.loss))
	stationary[0] = 1
	for range 100_000 {
		stationary = h.after(stationary)
	}
	lost := make([]float64, len(h.loss))
	for i, p := range stationary {
		lost[i] = p * h.loss[i]
		share += lost[i]
	}
	// The variance of a sum is that of its terms and the covariances of all pairs.
	variance := share * (1 - share)
	next := lost
	for lag := range 10_000 {
		next = h.after(next)
		var both float64
		for i, p := range next {
			both += p * h.loss[i]
		}
		variance += 2 * (both - share*share)
		if lag == 0 {
			burst = share / (share - both) // of what is lost, this share ends a run
		}
	}
	return share, math.Sqrt(variance / float64(n)), burst
}

var chains = map[string]qdisc.Netem{
	"Gilbert-Elliott p=1% r=10%":  {GilbertElliott: qdisc.GilbertElliott{P: 1, R: 10}},
	"Gilbert-Elliott with shares": {GilbertElliott: qdisc.GilbertElliott{P: 5, R: 20, LossBad: 70, LossGood: 2}},
	"4-state":                     {LossState: qdisc.LossState{P13: 2, P31: 20, P32: 15, P23: 50, P14: 1}},
	"4-state, isolated only":      {LossState: qdisc.LossState{P31: 100, P23: 100, P14: 10}},
}

// The shares and bursts are those of the closed form; the bounds are exceeded by chance
// once in 10,000 runs (3.89 deviations).
func TestChainInTheLongRun(t *testing.T) {
	if share, _, burst := hiddenOf(chains["Gilbert-Elliott p=1% r=10%"]).moments(1); math.Abs(share-1/11.) > 1e-9 || math.Abs(burst-10) > 1e-6 {
		t.Fatalf("closed form of p=1%% r=10%%: %.9f in bursts of %.9f, want 1/11 in bursts of 10", share, burst)
	}
	for name, n := range chains {
		t.Run(name, func(t *testing.T) {
			const packets = 1_000_000
			n.Seed = 3
			m := New(n)
			var lost, runs int
			before := 0
			for range packets {
				now := m.Packet(0, 100, 0, false).Lost
				lost += now
				if now > before {
					runs++
				}
				before = now
			}
			share, dev, burst := hiddenOf(n).moments(packets)
			if got := float64(lost) / packets; math.Abs(got-share) > 3.89*dev {
				t.Errorf("lost %.5f, want %.5f +- %.5f", got, share, 3.89*dev)
			}
			// A run is a single loss or of geometric length, whose deviation is nearly
			// its mean; half as much again is allowed for the mixture.
			if got, bound := float64(lost)/float64(runs), 3.89*1.5*burst/math.Sqrt(float64(runs)); math.Abs(got-burst) > bound {
				t.Errorf("bursts of %.3f, want %.3f +- %.3f", got, burst, bound)
			}
		})
	}
}

// A chain leaves the other draws alone, and begins anew with each model.
func TestChainSeed(t *testing.T) {
	run := func(n qdisc.Netem) (lost []int) {
		m := New(n)
		for range 1000 {
			lost = append(lost, m.Packet(0, 100, 0, false).Lost)
		}
		return lost
	}
	n := chains["4-state"]
	n.Seed = 1
	other := n
	other.Delay, other.Jitter, other.Corrupt = 10*ms, ms, 5
	if a := run(n); !cmp.Equal(a, run(n)) || !cmp.Equal(a, run(other)) {
		t.Error("the same seed lost other packets")
	}
	other.Seed = 2
	if cmp.Equal(run(n), run(other)) {
		t.Error("another seed lost the same packets")
	}
}

func TestCustomJitter(t *testing.T) {
	table := []int16{-qdisc.TableScale, 0, 0, qdisc.TableScale}
	_, delays := sum(qdisc.Netem{Delay: 10 * ms, Jitter: 4 * ms, Distribution: qdisc.Custom, Samples: qdisc.SamplesOf(table), Seed: 1})
	count := map[int64]int{}
	for _, d := range delays {
		count[d]++
	}
	for delay, p := range map[int64]float64{int64(6 * ms): .25, int64(10 * ms): .5, int64(14 * ms): .25} {
		within(t, "of that delay", count[delay], len(delays), p)
		delete(count, delay)
	}
	if len(count) > 0 {
		t.Errorf("other delays: %v", count)
	}
}

func BenchmarkChain(b *testing.B) {
	for name, n := range chains {
		b.Run(name, func(b *testing.B) {
			c, r := NewChain(n), rand.New(rand.NewPCG(1, 2))
			for b.Loop() {
				c.Lost(r.Uint32)
			}
		})
	}
}
