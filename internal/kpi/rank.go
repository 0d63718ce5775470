package kpi

import (
	"cmp"
	"math"
	"slices"
)

// Ranks is what the test of Mann and Whitney says of two samples.
type Ranks struct {
	// P is how often chance alone makes two samples of one population at least so different,
	// two-sided.
	P float64
	// Larger is the effect: the share of pairs in which the value of the second sample is the
	// larger one, a tie counted half; 0.5 for none.
	Larger float64
}

// Differ reports whether chance does not explain the difference, at Level.
func (r Ranks) Differ() bool { return r.P < 1-Level }

// MannWhitney compares two samples by their ranks (H. B. Mann, D. R. Whitney, 1947), by the normal
// approximation with correction for ties and continuity, which is good from 8 values in each; it
// is not known of fewer. The values of each sample are taken for independent.
func MannWhitney(first, second []float64) (Ranks, bool) {
	const least = 8
	if len(first) < least || len(second) < least {
		return Ranks{}, false
	}
	type value struct {
		v      float64
		second bool
	}
	var all []value
	for _, v := range first {
		all = append(all, value{v, false})
	}
	for _, v := range second {
		all = append(all, value{v, true})
	}
	slices.SortFunc(all, func(a, b value) int { return cmp.Compare(a.v, b.v) })
	n, m := float64(len(first)), float64(len(second))
	sum, ties := 0., 0.
	for i := 0; i < len(all); {
		j := i
		for j < len(all) && all[j].v == all[i].v {
			j++
		}
		t := float64(j - i)
		ties += t*t*t - t
		for _, x := range all[i:j] {
			if x.second {
				sum += float64(i+j+1) / 2 // the mean of the ranks i+1 to j
			}
		}
		i = j
	}
	u := sum - m*(m+1)/2
	r := Ranks{P: 1, Larger: u / (n * m)}
	variance := n * m / 12 * (n + m + 1 - ties/((n+m)*(n+m-1)))
	if away := math.Abs(u-n*m/2) - .5; variance > 0 && away > 0 {
		r.P = math.Erfc(away / math.Sqrt(2*variance))
	}
	return r, true
}
