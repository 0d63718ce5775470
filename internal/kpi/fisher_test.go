package kpi

import (
	"math"
	"slices"
	"testing"
)

// TestFisher: the values are of tables small enough to be counted.
func TestFisher(t *testing.T) {
	for _, c := range []struct {
		good, of, good2, of2 int
		want                 float64
	}{
		{3, 4, 1, 4, 0.4857142857},
		{1, 12, 9, 12, 0.002759456}, // 7,462 of 2,704,156
		{1, 10, 11, 12, 187. / 646646},
		{10, 10, 10, 10, 1},
		{0, 5, 5, 5, 0.0079365079},
		{50, 100, 50, 100, 1},
	} {
		got := Fisher(Rate(c.good, c.of), Rate(c.good2, c.of2))
		if math.Abs(got-c.want) > 1e-3*c.want {
			t.Errorf("%d of %d, %d of %d: %v, want %v", c.good, c.of, c.good2, c.of2, got, c.want)
		}
		if other := Fisher(Rate(c.good2, c.of2), Rate(c.good, c.of)); math.Abs(got-other) > 1e-9 {
			t.Errorf("%d of %d, %d of %d: %v, and the other way round %v", c.good, c.of, c.good2, c.of2, got, other)
		}
	}
	if p := Fisher(Rate(0, 0), Rate(1, 2)); p != 1 {
		t.Errorf("of nothing: %v", p)
	}
	if p := Fisher(Rate(50_000, 100_000), Rate(51_000, 100_000)); p < 1e-6 || p > 1e-4 {
		t.Errorf("of many calls: %v, want about 8e-6", p)
	}
}

func TestHolm(t *testing.T) {
	for _, c := range []struct {
		p    []float64
		want []bool
	}{
		{nil, []bool{}},
		{[]float64{0.0009}, []bool{true}},
		{[]float64{0.0009, 0.5}, []bool{false, false}},
		{[]float64{0.5, 0.0004, 0.0009}, []bool{false, false, false}},
		{[]float64{0.5, 0.0003, 0.0004}, []bool{false, true, true}},
		{[]float64{0.0009, 0.0003, 0.0005}, []bool{true, true, true}},
	} {
		if got := Holm(c.p); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.p, got, c.want)
		}
	}
}
