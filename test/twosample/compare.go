package twosample

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Proportions compares a of n draws with b of m: the two-proportion z test, which is
// chi-squared with one degree of freedom.
func Proportions(a, n, b, m int) float64 {
	p := float64(a+b) / float64(n+m)
	if n == 0 || m == 0 || p == 0 || p == 1 {
		return 1
	}
	z := (float64(a)/float64(n) - float64(b)/float64(m)) / math.Sqrt(p*(1-p)*(1/float64(n)+1/float64(m)))
	return math.Erfc(math.Abs(z) / math.Sqrt2)
}

// rare is how many of both samples a category needs, for chi-squared to be near: 5 in
// each (Cochran's rule).
const rare = 10

// Counts compares counts by category (chi-squared test of homogeneity). Categories with
// less than 10 of both together go with the one before.
func Counts(a, b []int) float64 {
	var x, y []float64
	for i := range a {
		if k := len(x); k > 0 && a[i]+b[i] < rare {
			x[k-1] += float64(a[i])
			y[k-1] += float64(b[i])
			continue
		}
		x, y = append(x, float64(a[i])), append(y, float64(b[i]))
	}
	var n, m, chi float64
	for i := range x {
		n += x[i]
		m += y[i]
	}
	if len(x) < 2 || n == 0 || m == 0 {
		return 1
	}
	for i := range x {
		if t := x[i] + y[i]; t > 0 {
			d := x[i]*math.Sqrt(m/n) - y[i]*math.Sqrt(n/m)
			chi += d * d / t
		}
	}
	return distuv.ChiSquared{K: float64(len(x) - 1)}.Survival(chi)
}

// Distributions compares two samples of anything (Kolmogorov and Smirnov, with Stephens'
// correction for small samples). Values that occur more than once make it say less than
// it could, never more.
func Distributions(a, b []float64) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	d := stat.KolmogorovSmirnov(slices.Sorted(slices.Values(a)), nil, slices.Sorted(slices.Values(b)), nil)
	n := math.Sqrt(float64(len(a)) * float64(len(b)) / float64(len(a)+len(b)))
	l := (n + .12 + .11/n) * d
	if l < .3 { // where the series converges slowly, to 1
		return 1
	}
	sum := 0.
	for k := 1.; k <= 100; k++ {
		sum += 2 * math.Pow(-1, k-1) * math.Exp(-2*k*k*l*l)
	}
	return min(1, max(0, sum))
}

// Means compares two samples' means (Welch).
func Means(a, b []float64) float64 {
	if len(a) < 2 || len(b) < 2 {
		return 1
	}
	m, v := stat.MeanVariance(a, nil)
	k, w := stat.MeanVariance(b, nil)
	v, w = v/float64(len(a)), w/float64(len(b))
	if v+w == 0 {
		return 1
	}
	df := (v + w) * (v + w) / (v*v/float64(len(a)-1) + w*w/float64(len(b)-1))
	return 2 * distuv.StudentsT{Sigma: 1, Nu: df}.Survival(math.Abs(m-k)/math.Sqrt(v+w))
}
