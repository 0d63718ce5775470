package qdisc

import (
	"math"
	"math/rand/v2"
	"testing"
)

// gemodel is loss_gilb_ell of net/sched/sch_netem.c.
type gemodel struct {
	p, r, h, k uint32
	bad        bool
	random     *rand.Rand
}

func (g *gemodel) lost() bool {
	if !g.bad {
		g.bad = g.random.Uint32() < g.p
		return g.random.Uint32() < g.k
	}
	g.bad = g.random.Uint32() >= g.r
	return g.random.Uint32() > g.h
}

// fourStates is loss_4state of net/sched/sch_netem.c, from Linux 6.2 on; before, it took
// equal numbers for a packet to pass.
type fourStates struct {
	p13, p31, p32, p23, p14 uint32
	state                   int
	random                  *rand.Rand
}

func (f *fourStates) lost() bool {
	x := f.random.Uint32()
	switch f.state {
	case 1:
		switch {
		case x < f.p14:
			f.state = 4
			return true
		case x < f.p13+f.p14:
			f.state = 3
			return true
		}
	case 2:
		if x < f.p23 {
			f.state = 3
			return true
		}
	case 3:
		switch {
		case x < f.p32:
			f.state = 2
		case x < f.p31+f.p32:
			f.state = 1
		default:
			return true
		}
	case 4:
		f.state = 1
	}
	return false
}

func TestGilbertElliottStatistics(t *testing.T) {
	s := GilbertElliott{P: 1, R: 10}.Statistics()
	near(t, "share", float64(s.Share), 100.0/11, 1e-9)
	near(t, "burst", s.MeanBurst, 10, 1e-9)
	near(t, "inflation", s.Inflation, 1.89/.11, 1e-9)
	// The half width of a 99.9 % interval for 100,000 packets.
	p := float64(s.Share) / 100
	near(t, "effective size", s.EffectiveSize(100_000), 5820, 1)
	near(t, "half width", 3.2905*math.Sqrt(p*(1-p)/s.EffectiveSize(100_000)), .0124, .00005)

	for _, g := range []GilbertElliott{
		{P: 1, R: 10},
		{P: 1, R: 10, LossBad: 50, LossGood: 2},
		{P: 5, R: 95},
		{P: 70, R: 90, LossBad: 80},
		{P: 10, R: 20, LossBad: 10, LossGood: 90},
	} {
		n := Netem{GilbertElliott: g}.Normalize().GilbertElliott
		random := rand.New(rand.NewPCG(1, 2))
		agree(t, g.String(), g.Statistics(), func() func() bool {
			m := &gemodel{n.P.Fraction(), n.R.Fraction(), math.MaxUint32 - n.LossBad.Fraction(), n.LossGood.Fraction(), false, random}
			return m.lost
		})
		if s, of := g.Statistics(), (Netem{GilbertElliott: g}).LossStatistics(); s != of {
			t.Errorf("%s: %v by itself, %v as a netem's", g, s, of)
		}
	}
}

func TestLossStateStatistics(t *testing.T) {
	for _, s := range []LossState{
		{P13: 1, P31: 10, P23: 100},
		{P13: 2, P31: 20, P32: 30, P23: 40, P14: 1},
		{P14: 5},
		{P13: 50, P31: 50, P32: 50, P23: 50, P14: 50},
		{P13: 5, P32: 10, P23: 30}, // never good again
		{P13: 100, P31: 100},
	} {
		n := Netem{LossState: s}.Normalize().LossState
		random := rand.New(rand.NewPCG(3, 4))
		agree(t, s.String(), s.Statistics(), func() func() bool {
			m := &fourStates{n.P13.Fraction(), n.P31.Fraction(), n.P32.Fraction(), n.P23.Fraction(), n.P14.Fraction(), 1, random}
			return m.lost
		})
	}
	// The closed form of the comment.
	p13, p31, p32, p23, p14 := .02, .2, .3, .4, .01
	q3 := p13 / p31
	q2, q4 := q3*p32/p23, p14
	s := LossState{P13: 2, P31: 20, P32: 30, P23: 40, P14: 1}.Statistics()
	near(t, "closed form", float64(s.Share)/100, (q3+q4)/(1+q2+q3+q4), 1e-9)
}

// Ends that are reached for good.
func TestLossStatisticsOfEnds(t *testing.T) {
	inf := math.Inf(1)
	for name, c := range map[string]struct {
		n            Netem
		share, burst float64
	}{
		"nothing":            {Netem{}, 0, 0},
		"independent":        {Netem{Loss: 20}, 20, 1.25},
		"all":                {Netem{Loss: 100}, 100, inf},
		"bad for ever":       {Netem{GilbertElliott: GilbertElliott{P: 1}}, 100, inf},
		"bad half lost":      {Netem{GilbertElliott: GilbertElliott{P: 1, LossBad: 50}}, 50, 2},
		"lost for ever":      {Netem{LossState: LossState{P13: 1}}, 100, inf},
		"good within bursts": {Netem{LossState: LossState{P13: 1, P32: 5}}, 0, 0},
		"in turns":           {Netem{GilbertElliott: GilbertElliott{P: 100, R: 100}}, 50, 1},
	} {
		s := c.n.LossStatistics()
		near(t, name+": share", float64(s.Share), c.share, 1e-6)
		if s.MeanBurst != c.burst {
			near(t, name+": burst", s.MeanBurst, c.burst, 1e-6)
		}
		if s.Inflation < 0 || s.EffectiveSize(1000) > 1000 {
			t.Errorf("%s: inflation %v, effective size of 1000 is %v", name, s.Inflation, s.EffectiveSize(1000))
		}
	}
	s := Netem{Loss: 20, LossCorrelation: 25}.LossStatistics()
	near(t, "correlated share", float64(s.Share), float64(CorrelatedShare(20, 25)), 1e-9)
	near(t, "correlated inflation", s.Inflation, 1.25/.75, 1e-9)
	if !math.IsNaN(s.MeanBurst) {
		t.Errorf("correlated burst %v, want none known", s.MeanBurst)
	}
}

// agree compares what a model is reckoned to do with what the kernel's code does,
// over many runs of one length. The means have a known deviation; their variance over
// the runs is held to 5 deviations of a sample variance.
func agree(t *testing.T, name string, want LossStatistics, model func() func() bool) {
	t.Helper()
	const runs, length, start = 400, 4000, 500
	var shares []float64
	lost, bursts := 0, 0
	for range runs {
		next := model()
		for range start { // forget the state at the beginning
			next()
		}
		n, before := 0, true
		for range length {
			l := next()
			if l {
				n++
				if !before {
					bursts++
				}
			}
			before = l
		}
		lost += n
		shares = append(shares, float64(n)/length)
	}
	p := float64(want.Share) / 100
	variance := p * (1 - p) * want.Inflation / length
	mean, seen := 0.0, 0.0
	for _, s := range shares {
		mean += s / runs
	}
	for _, s := range shares {
		seen += (s - mean) * (s - mean) / (runs - 1)
	}
	near(t, name+": share", mean, p, 5*math.Sqrt(variance/runs)+1e-4)
	// bursts cut by the ends of a run are few; the burst's deviation is of its own size
	near(t, name+": burst", float64(lost)/float64(bursts), want.MeanBurst, want.MeanBurst*(5*math.Sqrt(want.Inflation/float64(bursts))+1e-2))
	if variance < 1e-12 { // in turns
		near(t, name+": variance", seen, 0, 1e-6)
		return
	}
	near(t, name+": variance", seen/variance, 1, 5*math.Sqrt(2.0/runs)+.02)
}

func near(t *testing.T, name string, got, want, within float64) {
	t.Helper()
	if !(math.Abs(got-want) <= within) {
		t.Errorf("%s: %v, want %v within %v", name, got, want, within)
	}
}
