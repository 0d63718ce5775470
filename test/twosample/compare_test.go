package twosample

import (
	"math/rand/v2"
	"testing"
)

// Of pairs of samples from one distribution few have a small chance, and pairs from two
// are told apart at the level of a family of 40.
func TestChances(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	hits := func(n int, p float64) (k int) {
		for range n {
			if r.Float64() < p {
				k++
			}
		}
		return k
	}
	sample := func(n int, mean, dev float64) []float64 {
		x := make([]float64, n)
		for i := range x {
			x[i] = mean + dev*r.NormFloat64()
		}
		return x
	}
	dice := func(n int, sixth float64) []int {
		c := make([]int, 4)
		for range n {
			if r.Float64() < sixth {
				c[3]++
			} else {
				c[r.IntN(3)]++
			}
		}
		return c
	}
	rounded := func(x []float64) []float64 {
		for i := range x {
			x[i] = float64(int(x[i] / 50))
		}
		return x
	}
	for name, c := range map[string]struct{ same, other func() float64 }{
		"proportions": {
			func() float64 { return Proportions(hits(500, .2), 500, hits(300, .2), 300) },
			func() float64 { return Proportions(hits(500, .2), 500, hits(300, .4), 300) },
		},
		"counts": {
			func() float64 { return Counts(dice(400, .25), dice(200, .25)) },
			func() float64 { return Counts(dice(400, .25), dice(200, .55)) },
		},
		"distributions": {
			func() float64 { return Distributions(sample(300, 200, 60), sample(200, 200, 60)) },
			func() float64 { return Distributions(sample(300, 200, 60), sample(200, 240, 60)) },
		},
		"distributions of few values": {
			func() float64 { return Distributions(rounded(sample(300, 200, 60)), rounded(sample(200, 200, 60))) },
			func() float64 { return Distributions(rounded(sample(300, 200, 60)), rounded(sample(200, 250, 60))) },
		},
		"means": {
			func() float64 { return Means(sample(50, 5, 1), sample(30, 5, 3)) },
			func() float64 { return Means(sample(50, 5, 1), sample(30, 9, 3)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			const pairs = 1000
			small, told := 0, 0
			for range pairs {
				if c.same() < .01 {
					small++
				}
				if c.other() < Level/40 {
					told++
				}
			}
			// Binomial: above 28 of 1000 once in 500,000 runs at 1 %, and the draws are seeded.
			if small > 28 {
				t.Errorf("%d of %d of the same are below 1 %%", small, pairs)
			}
			if told < pairs*9/10 {
				t.Errorf("only %d of %d that differ are told apart", told, pairs)
			}
		})
	}
}

// Nothing is no difference.
func TestNothing(t *testing.T) {
	for name, p := range map[string]float64{
		"proportions of none":   Proportions(0, 0, 3, 10),
		"none of all":           Proportions(0, 10, 0, 10),
		"all of all":            Proportions(10, 10, 10, 10),
		"counts of none":        Counts([]int{0, 0}, []int{20, 30}),
		"one category":          Counts([]int{10}, []int{20}),
		"rare categories":       Counts([]int{10, 1, 2}, []int{10, 4, 1}),
		"distributions of none": Distributions(nil, []float64{1}),
		"one distribution":      Distributions([]float64{1, 2, 3}, []float64{3, 2, 1}),
		"means of none":         Means(nil, []float64{1, 2}),
		"means without spread":  Means([]float64{1, 1}, []float64{1, 1}),
	} {
		if p != 1 {
			t.Errorf("%s: %v, want 1", name, p)
		}
	}
}

// Judge lets through what is as it should be, and nothing else.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		add func(*Family)
		bad bool
	}{
		"none":               {func(*Family) {}, true},
		"same":               {func(f *Family) { f.Same("a", .01); f.Differ("b", 1e-6) }, false},
		"differ":             {func(f *Family) { f.Same("a", 1e-4) }, true},
		"not told apart":     {func(f *Family) { f.Same("a", .5); f.Differ("b", .01) }, true},
		"one among others":   {func(f *Family) { f.Same("a", 6e-4); f.Same("b", .5) }, false},
		"one below 0.05 %":   {func(f *Family) { f.Same("a", 4e-4); f.Same("b", .5) }, true},
		"in a larger family": {func(f *Family) { f.Same("a", 4e-4); f.Same("b", .5); f.Same("c", .5) }, false},
	} {
		var f Family
		c.add(&f)
		r := &recorder{TB: t}
		if f.Judge(r); r.failed != c.bad {
			t.Errorf("%s: failed %t, want %t", name, r.failed, c.bad)
		}
	}
}

// recorder is a test that only notes whether it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Logf(string, ...any)   {}
func (r *recorder) Error(...any)          { r.failed = true }
func (r *recorder) Errorf(string, ...any) { r.failed = true }
