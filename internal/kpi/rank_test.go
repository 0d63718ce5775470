package kpi

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestMannWhitney(t *testing.T) {
	// By hand: the second sample wins 36 of 64 pairs; the mean is
	// 32, and the variance 8*8*17/12.
	first := []float64{1, 3, 5, 7, 9, 11, 13, 15}
	second := []float64{2, 4, 6, 8, 10, 12, 14, 20}
	r, ok := MannWhitney(first, second)
	if u := r.Larger * 64; !ok || u != 36 || math.Abs(r.P-math.Erfc(3.5/math.Sqrt(2*64*17./12))) > 1e-12 || r.Differ() {
		t.Errorf("%+v %v, u %v", r, ok, u)
	}
	same := []float64{4, 4, 4, 4, 4, 4, 4, 4}
	if r, ok := MannWhitney(same, same); !ok || r.P != 1 || r.Larger != .5 {
		t.Errorf("%+v", r)
	}
	if _, ok := MannWhitney(first[:7], second); ok {
		t.Error("seven are enough")
	}
	var more []float64
	for _, v := range first {
		more = append(more, v+100)
	}
	if r, _ := MannWhitney(first, more); r.Larger != 1 || !r.Differ() {
		t.Errorf("%+v", r)
	}
}

// TestMannWhitneyNoise has two samples of one population called different as seldom as Level
// says: 10 of 2,000 pairs would be by chance in one of 20,000 runs.
func TestMannWhitneyNoise(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	draw := func(n int) (all []float64) {
		for range n {
			all = append(all, math.Round(100*random.ExpFloat64()))
		}
		return all
	}
	different := 0
	for range 2000 {
		if r, _ := MannWhitney(draw(40), draw(60)); r.Differ() {
			different++
		}
	}
	if different >= 10 {
		t.Errorf("%d of 2000", different)
	}
}
