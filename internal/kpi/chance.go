package kpi

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// Level is the share of runs in which chance alone does not make two rates different.
const Level = 0.999

// quantile is the two-sided one of the normal distribution at Level.
const quantile = 3.2905267314919255

// Agrees reports whether chance explains, at the level, that good of all differs from the
// probability p: neither tail of the binomial distribution is rarer than half of 1 - level.
func Agrees(good, all int, p, level float64) bool {
	if all <= 0 || p <= 0 || p >= 1 {
		return all > 0 && float64(good) == p*float64(all)
	}
	tail := (1 - level) / 2
	k, n := float64(good), float64(all)
	atMost, atLeast := 1., 1.
	if good < all {
		atMost = mathext.RegIncBeta(n-k, k+1, 1-p)
	}
	if good > 0 {
		atLeast = mathext.RegIncBeta(k, n-k+1, p)
	}
	return atMost >= tail && atLeast >= tail
}

// Interval bounds a rate at Level by Clopper's and Pearson's exact interval (C. J. Clopper,
// E. S. Pearson, 1934); it is 0..1 of nothing.
func Interval(v Value) (low, high float64) {
	low, high = 0, 1
	if v.Of == 0 || !v.Known() {
		return low, high
	}
	const tail = (1 - Level) / 2
	n := float64(v.Of)
	k := math.Round(v.Number * n)
	if k > 0 {
		low = mathext.InvRegIncBeta(k, n-k+1, tail)
	}
	if k < n {
		high = mathext.InvRegIncBeta(k+1, n-k, 1-tail)
	}
	return low, high
}

// alike reports whether two rates, or a rate and a number, are the same but for chance; two
// numbers without chance are so when they are equal.
func alike(x, y Value) bool {
	switch {
	case x.Of == 0 && y.Of == 0:
		return x.Number == y.Number
	case x.Of == 0:
		return Agrees(int(math.Round(y.Number*float64(y.Of))), y.Of, x.Number, Level)
	case y.Of == 0:
		return Agrees(int(math.Round(x.Number*float64(x.Of))), x.Of, y.Number, Level)
	}
	n, m := float64(x.Of), float64(y.Of)
	p := (x.Number*n + y.Number*m) / (n + m)
	if p == 0 || p == 1 {
		return true
	}
	return math.Abs(x.Number-y.Number) <= quantile*math.Sqrt(p*(1-p)*(1/n+1/m))
}

// Uniform reports whether chance explains, at the level, that sorted values differ from an even
// spread between low and high: no step of their distribution function is further from the line
// than the bound of Dvoretzky, Kiefer and Wolfowitz with Massart's constant (P. Massart, 1990).
// It is false of no values.
func Uniform(values []float64, low, high, level float64) bool {
	n := float64(len(values))
	if n == 0 || high <= low {
		return false
	}
	bound := math.Sqrt(math.Log(2/(1-level)) / (2 * n))
	for i, v := range values {
		line := min(1, max(0, (v-low)/(high-low)))
		if math.Max(math.Abs(float64(i)/n-line), math.Abs(float64(i+1)/n-line)) > bound {
			return false
		}
	}
	return true
}
