package verify

import (
	"math"

	"gonum.org/v1/gonum/mathext"
)

// clopperPearson bounds the share of which k of n were seen, at a two-sided error of
// alpha, exactly (C. J. Clopper and E. S. Pearson, 1934, "The use of confidence or
// fiducial limits illustrated in the case of the binomial"). k and n need not be
// whole: an effective number of draws is not.
func clopperPearson(k, n, alpha float64) (low, high float64) {
	low, high = 0, 1
	if n <= 0 {
		return low, high
	}
	if k > 0 {
		low = mathext.InvRegIncBeta(k, n-k+1, alpha/2)
	}
	if k < n {
		high = mathext.InvRegIncBeta(k+1, n-k, 1-alpha/2)
	}
	return low, high
}

// binomialAtMost is P(K <= k) of n draws of probability p.
func binomialAtMost(k, n int, p float64) float64 {
	switch {
	case k < 0:
		return 0
	case k >= n || p <= 0:
		return 1
	case p >= 1:
		return 0
	}
	return mathext.RegIncBeta(float64(n-k), float64(k+1), 1-p)
}

// quantileRanks are the ranks, from 1 on, of the order statistics of n draws between
// which their distribution's quantile q lies, at a two-sided error of alpha: exact
// for every distribution. 0 and n+1 stand for no bound.
func quantileRanks(n int, q, alpha float64) (low, high int) {
	// The number of draws up to the quantile is binomial; by halving, the largest rank
	// that is still too low, and the smallest that is too high.
	low = search(n+1, func(k int) bool { return binomialAtMost(k-1, n, q) > alpha/2 }) - 1
	high = search(n+1, func(k int) bool { return binomialAtMost(k-1, n, q) >= 1-alpha/2 })
	return max(low, 0), high
}

// search is the smallest k in 0..n for which f holds, n if for none.
func search(n int, f func(int) bool) int {
	low, high := 0, n
	for low < high {
		if mid := (low + high) / 2; f(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}

// dkw is how far the distribution function of n draws is from the true one at most,
// at an error of alpha (A. Dvoretzky, J. Kiefer, J. Wolfowitz, 1956, with the
// constant of P. Massart, 1990).
func dkw(n int, alpha float64) float64 {
	if n <= 0 {
		return 1
	}
	return min(1, math.Sqrt(math.Log(2/alpha)/(2*float64(n))))
}

// normalBound is the two-sided quantile of the normal distribution.
func normalBound(alpha float64) float64 { return mathext.NormalQuantile(1 - alpha/2) }
