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

// TestStudent: 2.776 and 4.604 are the two-sided quantiles of 95 and 99 % for four degrees of
// freedom.
func TestStudent(t *testing.T) {
	for _, c := range []struct{ away, want float64 }{{2.7764451, .05}, {4.6040949, .01}} {
		shift := c.away * math.Sqrt(2./3) // of the unit variance of -1, 0, 1
		got, known := Student([]float64{-1, 0, 1}, []float64{shift - 1, shift, shift + 1})
		if !known || math.Abs(got-c.want) > 1e-6 {
			t.Errorf("%v: %v, want %v", c.away, got, c.want)
		}
	}
	for _, c := range []struct {
		a, b  []float64
		want  float64
		known bool
	}{
		{[]float64{1, 1}, []float64{1, 1}, 1, true}, {[]float64{1, 1}, []float64{2, 2}, 0, true}, {[]float64{1}, []float64{2, 3}, 1, false},
	} {
		if got, known := Student(c.a, c.b); got != c.want || known != c.known {
			t.Errorf("%v, %v: %v, %v", c.a, c.b, got, known)
		}
	}
}
