package experiment

import (
	"math"
	"math/rand/v2"
	"testing"

	"netemd/qdisc"
)

func TestMeasureLoss(t *testing.T) {
	for _, c := range []struct {
		asked           qdisc.Percent
		seen, lost      uint64
		low, high       float64 // by Wilson's formula, worked out by hand
		asAsked, effect bool
	}{
		{20, 1000, 200, 16.173, 24.468, true, true},
		{20, 1000, 300, 25.467, 34.962, false, true},
		{20, 1000, 0, 0, 1.071, false, false},
		{0.1, 1000, 0, 0, 1.071, true, true}, // none lost is no surprise
		{100, 50, 50, 82.199, 100, true, true},
	} {
		l := MeasureLoss(c.asked, 0, c.seen, c.lost)
		if math.Abs(*l.Low-c.low) > 0.01 || math.Abs(*l.High-c.high) > 0.01 {
			t.Errorf("%v of %d: %d lost: interval %.3f..%.3f, want %.3f..%.3f", c.asked, c.seen, c.lost, *l.Low, *l.High, c.low, c.high)
		}
		if l.AsAsked() != c.asAsked || l.NoEffect() == c.effect {
			t.Errorf("%v of %d: %d lost: as asked %v, no effect %v", c.asked, c.seen, c.lost, l.AsAsked(), l.NoEffect())
		}
	}
	if l := MeasureLoss(20, 0, 0, 0); l.Measured != nil || l.AsAsked() || l.NoEffect() {
		t.Errorf("nothing seen: %+v", l)
	}
}

// TestIntervalCovers draws 2,000 runs with a fixed seed: the interval misses the
// truth in about 1 of 1,000, and in more than 12 with a chance below 1e-5 (Poisson,
// mean 2).
func TestIntervalCovers(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	missed := 0
	for range 2000 {
		lost := uint64(0)
		for range 500 {
			if draw.Float64() < 0.2 {
				lost++
			}
		}
		if !MeasureLoss(20, 0, 500, lost).AsAsked() {
			missed++
		}
	}
	if missed > 12 {
		t.Errorf("the interval missed the truth in %d of 2000 runs", missed)
	}
}

// TestCorrelatedLoss: the share is that of netem's generator, and the interval of
// independent draws judges nothing.
func TestCorrelatedLoss(t *testing.T) {
	for _, c := range []struct {
		asked, correlation qdisc.Percent
		seen, lost         uint64
		noEffect           bool
	}{
		{20, 50, 2000, 59, false},
		{20, 50, 2000, 0, true},
		{20, 50, 100, 0, false}, // of 33 independent draws at 2.9 % none is hit in 4 of 10 runs
		{20, 100, 2000, 0, false},
	} {
		l := MeasureLoss(c.asked, c.correlation, c.seen, c.lost)
		if l.Judged() || l.AsAsked() || l.Low != nil || l.High != nil || l.Measured == nil || l.NoEffect() != c.noEffect {
			t.Errorf("%+v: %+v, no effect %v", c, l, l.NoEffect())
		}
	}
	if l := MeasureLoss(20, 50, 2000, 59); math.Abs(float64(l.Expected)-2.95) > 0.2 {
		t.Errorf("expected %v, netem's generator makes about 2.9%%", l.Expected)
	}
}
