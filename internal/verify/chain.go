package verify

import (
	"math"
	"slices"

	"netemd/qdisc"
)

// lossModel is what a loss that was asked for does in the long run.
type lossModel struct {
	// share of the packets is hit, 0..1.
	share float64
	// inflation is how many dependent draws are worth one independent one: the
	// variance of a sum over that of independent draws.
	inflation float64
	// burst is the mean number of packets hit one after another, 0 when it is not
	// known. Their lengths are geometric if geometric.
	burst     float64
	geometric bool
}

// lossOf is the model of what n asks for.
func lossOf(n qdisc.Netem) lossModel {
	switch {
	case n.GilbertElliott != qdisc.GilbertElliott{}:
		g := n.GilbertElliott
		bad := fraction(g.LossBad)
		if g.LossBad == 0 {
			bad = 1
		}
		p, r, good := fraction(g.P), fraction(g.R), fraction(g.LossGood)
		m := markov([][]float64{{1 - p, p}, {r, 1 - r}}, []float64{good, bad})
		m.geometric = bad == 1 && good == 0
		return m
	case n.LossState != qdisc.LossState{}:
		s := n.LossState
		p13, p31, p32, p23, p14 := fraction(s.P13), fraction(s.P31), fraction(s.P32), fraction(s.P23), fraction(s.P14)
		return markov([][]float64{
			{1 - p13 - p14, 0, p13, p14},
			{0, 1 - p23, p23, 0},
			{p31, p32, 1 - p31 - p32, 0},
			{1, 0, 0, 0},
		}, []float64{0, 0, 1, 1})
	}
	share, rho := fraction(qdisc.CorrelatedShare(n.Loss, n.LossCorrelation)), fraction(n.LossCorrelation)
	m := lossModel{share: share, inflation: correlated(rho)}
	if rho == 0 && share < 1 {
		m.burst, m.geometric = 1/(1-share), true
	}
	return m
}

func fraction(p qdisc.Percent) float64 { return float64(p) / 100 }

// correlated is the inflation of draws with netem's correlation. The numbers drawn
// have that autocorrelation; whether they are below a bound has less, so this is on
// the safe side.
func correlated(rho float64) float64 {
	if rho >= 1 {
		return math.Inf(1)
	}
	return (1 + rho) / (1 - rho)
}

// markov is the model of a chain of states that begins in the first, of which each
// loses that share of its packets.
func markov(next [][]float64, loses []float64) lossModel {
	next, loses = reachable(next, loses)
	states := len(loses)
	// The stationary distribution: at*(next-1) = 0, with a sum of 1 in place of one of
	// the equations, which follows from the others.
	a, b := square(states), make([]float64, states)
	for i := range states {
		for j := range states {
			a[j][i] = next[i][j]
		}
		a[i][i]--
	}
	for j := range states {
		a[states-1][j] = 1
	}
	b[states-1] = 1
	at := solve(a, b)
	share := dot(at, loses)
	m := lossModel{share: share, inflation: 1}
	if share <= 0 || share >= 1 {
		return m
	}
	// lost and kept are the states' weights together with the packet's fate.
	lost, kept := make([]float64, states), make([]float64, states)
	for i := range at {
		lost[i], kept[i] = at[i]*loses[i], at[i]*(1-loses[i])
	}
	if begins := dot(step(kept, next), loses); begins > 0 {
		m.burst = share / begins
	}
	// The sum of the autocovariances of hit or not, over all distances, is
	// (lost - share*at) * next * (1 - next + at)^-1 * loses: the fundamental matrix of
	// the chain (J. G. Kemeny and J. L. Snell, "Finite Markov Chains").
	for i := range states {
		for j := range states {
			a[i][j] = at[j] - next[i][j]
		}
		a[i][i]++
	}
	for i := range lost {
		lost[i] -= share * at[i]
	}
	sum := dot(step(lost, next), solve(a, loses))
	m.inflation = max(1, 1+2*sum/(share*(1-share)))
	return m
}

// reachable leaves out the states that the first never leads to.
func reachable(next [][]float64, loses []float64) ([][]float64, []float64) {
	found := []int{0}
	for i := 0; i < len(found); i++ {
		for j, p := range next[found[i]] {
			if p > 0 && !slices.Contains(found, j) {
				found = append(found, j)
			}
		}
	}
	some := square(len(found))
	kept := make([]float64, len(found))
	for i, from := range found {
		kept[i] = loses[from]
		for j, to := range found {
			some[i][j] = next[from][to]
		}
	}
	return some, kept
}

func square(n int) [][]float64 {
	a := make([][]float64, n)
	for i := range a {
		a[i] = make([]float64, n)
	}
	return a
}

// solve returns x with a*x = b, by elimination with pivots; it keeps a and b.
func solve(a [][]float64, b []float64) []float64 {
	n := len(b)
	rows := square(n)
	for i := range rows {
		rows[i] = append(slices.Clone(a[i]), b[i])
	}
	for i := range n {
		best := i
		for j := i + 1; j < n; j++ {
			if math.Abs(rows[j][i]) > math.Abs(rows[best][i]) {
				best = j
			}
		}
		rows[i], rows[best] = rows[best], rows[i]
		for j := range n {
			if j == i || rows[i][i] == 0 {
				continue
			}
			f := rows[j][i] / rows[i][i]
			for k := i; k <= n; k++ {
				rows[j][k] -= f * rows[i][k]
			}
		}
	}
	x := make([]float64, n)
	for i := range x {
		if rows[i][i] != 0 {
			x[i] = rows[i][n] / rows[i][i]
		}
	}
	return x
}

func step(at []float64, next [][]float64) []float64 {
	to := make([]float64, len(at))
	for i, weight := range at {
		for j, p := range next[i] {
			to[j] += weight * p
		}
	}
	return to
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
