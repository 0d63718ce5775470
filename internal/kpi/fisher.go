package kpi

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Fisher says how often chance alone makes two rates of one population at least as different,
// two-sided, by the exact test of R. A. Fisher (1922): of all tables with the same sums, those
// that are no likelier. It is 1 where one of them is of nothing.
func Fisher(a, b Value) float64 {
	if a.Of == 0 || b.Of == 0 || !a.Known() || !b.Known() {
		return 1
	}
	good, all, n := int(math.Round(a.Number*float64(a.Of))), int(math.Round(b.Number*float64(b.Of))), a.Of
	all += good // in both
	total := a.Of + b.Of
	// likely is the logarithm of the hypergeometric probability, but for a constant.
	likely := func(k int) float64 {
		return -factorial(k) - factorial(all-k) - factorial(n-k) - factorial(total-all-n+k)
	}
	here := likely(good)
	most := math.Inf(-1)
	low, high := max(0, all+n-total), min(all, n)
	for k := low; k <= high; k++ {
		most = max(most, likely(k))
	}
	sum, rare := 0., 0.
	for k := low; k <= high; k++ {
		l := likely(k)
		p := math.Exp(l - most)
		sum += p
		if l <= here+1e-7 { // equal ones differ by rounding
			rare += p
		}
	}
	return min(1, rare/sum)
}

// factorial is the logarithm of n!.
func factorial(n int) float64 {
	l, _ := math.Lgamma(float64(n) + 1)
	return l
}

// Holm says which of several tests find a difference, so that with probability Level none does
// where there is none, whatever depends on what (S. Holm, 1979).
func Holm(p []float64) []bool {
	found := make([]bool, len(p))
	for left := len(p); left > 0; left-- {
		least := -1
		for i, v := range p {
			if !found[i] && (least < 0 || v < p[least]) {
				least = i
			}
		}
		if p[least] > (1-Level)/float64(left) {
			break
		}
		found[least] = true
	}
	return found
}

// Student says how often chance alone makes the means of two normal populations of one mean and
// variance as different, two-sided (Student, 1908); false with fewer than two values in each.
func Student(a, b []float64) (p float64, known bool) {
	if len(a) < 2 || len(b) < 2 {
		return 1, false
	}
	moments := func(v []float64) (mean, squares float64) {
		for _, x := range v {
			mean += x / float64(len(v))
		}
		for _, x := range v {
			squares += (x - mean) * (x - mean)
		}
		return mean, squares
	}
	x, s := moments(a)
	y, r := moments(b)
	n, m := float64(len(a)), float64(len(b))
	freedom := n + m - 2
	variance := (s + r) / freedom * (1/n + 1/m)
	switch {
	case x == y:
		return 1, true
	case variance == 0:
		return 0, true
	}
	t := (x - y) * (x - y) / variance
	return mathext.RegIncBeta(freedom/2, .5, freedom/(freedom+t)), true
}
