package qdisc

import "math"

// LossStatistics are what a loss model does on average, to compare a measured
// loss with.
type LossStatistics struct {
	// Share of the packets that is lost, in the long run. 0..100 %.
	Share Percent
	// MeanBurst is the mean length of a run of lost packets, in packets: 0 when none
	// is ever lost, infinite when all are in the end, and NaN when it is not known.
	MeanBurst float64
	// Inflation is how much larger the variance of the loss share of n packets is than
	// if each were lost by itself: n correlated packets say as much as n/Inflation
	// independent ones. It is 1 for independent losses, above for bursts, and NaN when it
	// is not known.
	Inflation float64
}

// EffectiveSize is the number of independent packets that say as much about the
// loss share as n packets do. It is at most n.
func (s LossStatistics) EffectiveSize(n uint64) float64 {
	return float64(n) / max(s.Inflation, 1)
}

// LossStatistics returns what n's loss does, of whatever kind.
//
// Packets of random loss are lost independently: the share p, bursts of 1/(1-p), an
// Inflation of 1. With a correlation, the share is CorrelatedShare's; its successive
// draws have the correlation rho at most, so that the Inflation is at most
// (1+rho)/(1-rho), which is what stands here; the length of bursts is not known.
func (n Netem) LossStatistics() LossStatistics {
	switch {
	case n.LossState != LossState{}:
		return n.LossState.Statistics()
	case n.GilbertElliott != GilbertElliott{}:
		return n.GilbertElliott.Statistics()
	}
	p := CorrelatedShare(n.Loss, n.LossCorrelation)
	s := LossStatistics{Share: p, Inflation: 1}
	switch rho := float64(n.LossCorrelation) / 100; {
	case p == 0:
	case rho >= 1:
		s.MeanBurst, s.Inflation = math.NaN(), math.Inf(1)
	case rho > 0:
		s.MeanBurst, s.Inflation = math.NaN(), (1+rho)/(1-rho)
	default:
		s.MeanBurst = 100 / (100 - float64(p))
	}
	return s
}

// Statistics returns what the model does in its steady state; the kernel starts it in
// the good state.
//
// Let the chain be bad in the share b = p/(p+r) of the time, good in g = 1-b, and
// lose e_b and e_g there. Then:
//
//	share     s = b*e_b + g*e_g
//	burst     s / (s - P(two in succession lost)): losses per beginning of a run.
//	          With e_b = 1 and e_g = 0 that is 1/r.
//	inflation The state's correlation over k packets is lambda^k, lambda = 1-p-r, so the
//	          covariance of two losses k packets apart is b*g*(e_b-e_g)^2*lambda^k. Their sum
//	          over all k, on both sides, beside the variance s*(1-s), gives
//	          1 + 2*b*g*(e_b-e_g)^2/(s*(1-s)) * lambda/(1-lambda).
//	          With e_b = 1 and e_g = 0 that is (1+lambda)/(1-lambda).
func (g GilbertElliott) Statistics() LossStatistics {
	if g == (GilbertElliott{}) {
		return LossStatistics{Inflation: 1}
	}
	bad := share(g.LossBad)
	if bad == 0 {
		bad = 1
	}
	p, r := share(g.P), share(g.R)
	c := chain{
		next: [states][states]float64{{1 - p, p}, {r, 1 - r}},
		loss: [states]float64{share(g.LossGood), bad},
	}
	return c.statistics()
}

// Statistics returns what the model does in its steady state; the kernel starts it
// in state 1.
//
// Packets are lost in the states 3 and 4 (the kernel decides by the state that a packet
// leads to). Where all are reached, the balance of what enters and leaves a state gives,
// with q1 as the unit,
//
//	q3 = p13/p31, q2 = q3*p32/p23, q4 = p14, share = (q3+q4) / (1+q2+q3+q4)
//
// and a burst is the losses per beginning of a run, share / P(lost after not lost).
// The general solution, which holds where states are not reached or not left, and the
// inflation are chain.statistics's.
func (s LossState) Statistics() LossStatistics {
	if s == (LossState{}) {
		return LossStatistics{Inflation: 1}
	}
	p13, p31, p32, p23, p14 := share(s.P13), share(s.P31), share(s.P32), share(s.P23), share(s.P14)
	c := chain{
		next: [states][states]float64{
			{1 - p13 - p14, 0, p13, p14},
			{0, 1 - p23, p23, 0},
			{p31, p32, 1 - p31 - p32, 0},
			{1, 0, 0, 0},
		},
		loss: [states]float64{0, 0, 1, 1},
	}
	return c.statistics()
}

func share(p Percent) float64 { return float64(p) / 100 }

const states = 4

// chain is a Markov chain that begins in its first state: next[i][j] is the chance to
// go from i to j, loss[i] that of a packet to be lost in i.
type chain struct {
	next [states][states]float64
	loss [states]float64
}

// statistics solves the chain. With q its steady state, the share is s = sum(q*loss) and
// the chance of two losses in succession t = sum(q_i*loss_i*next_ij*loss_j), so a run of
// losses begins s-t times per packet and is s/(s-t) long.
//
// The covariance of losses k apart is sum(q_i*loss_i*(next^k*loss)_i) - s^2. Its sum over all
// k > 0 is sum(q_i*loss_i*(next*h)_i), where h = sum over k >= 0 of (next^k*loss - s) is
// the solution of (1 - next + Q)*h = loss - s, with q in every row of Q (the fundamental
// matrix of Kemeny and Snell, "Finite Markov Chains", chapter 4). The inflation is
// 1 + 2*that/(s*(1-s)).
func (c chain) statistics() LossStatistics {
	c.cut()
	q := c.steady()
	var s, t float64
	for i := range states {
		s += q[i] * c.loss[i]
		for j := range states {
			t += q[i] * c.loss[i] * c.next[i][j] * c.loss[j]
		}
	}
	const none = 1e-12 // below what any share can be, and above what rounding leaves
	switch {
	case s < none:
		return LossStatistics{Inflation: 1}
	case s > 1-none:
		return LossStatistics{Share: 100, MeanBurst: math.Inf(1), Inflation: 1}
	}
	out := LossStatistics{Share: Percent(100 * s), MeanBurst: s / (s - t)}

	var a [states][states]float64
	var b [states]float64
	for i := range states {
		for j := range states {
			a[i][j] = q[j] - c.next[i][j]
		}
		a[i][i]++
		b[i] = c.loss[i] - s
	}
	h := solve(a, b)
	sum := 0.0
	for i := range states {
		for j := range states {
			sum += q[i] * c.loss[i] * c.next[i][j] * h[j]
		}
	}
	out.Inflation = max(0, 1+2*sum/(s*(1-s)))
	return out
}

// cut lets what the first state never reaches lead to it, so that the steady state is
// the one that is reached.
func (c *chain) cut() {
	reached := [states]bool{true}
	for range states {
		for i := range states {
			for j := range states {
				reached[j] = reached[j] || reached[i] && c.next[i][j] > 0
			}
		}
	}
	for i := range states {
		if !reached[i] {
			c.next[i] = [states]float64{1}
		}
	}
}

// steady is the q with q*next = q and the sum 1.
func (c chain) steady() [states]float64 {
	var a [states][states]float64
	for i := range states {
		for j := range states {
			a[j][i] = c.next[i][j]
		}
		a[i][i]--
	}
	// One of the balances follows from the others; the sum takes its place.
	a[0] = [states]float64{1, 1, 1, 1}
	return solve(a, [states]float64{1})
}

// solve solves a*x = b by elimination.
func solve(a [states][states]float64, b [states]float64) [states]float64 {
	for k := range states {
		pivot := k
		for i := k + 1; i < states; i++ {
			if math.Abs(a[i][k]) > math.Abs(a[pivot][k]) {
				pivot = i
			}
		}
		a[k], a[pivot], b[k], b[pivot] = a[pivot], a[k], b[pivot], b[k]
		for i := range states {
			if i == k {
				continue
			}
			f := a[i][k] / a[k][k]
			for j := k; j < states; j++ {
				a[i][j] -= f * a[k][j]
			}
			b[i] -= f * b[k]
		}
	}
	for k := range states {
		b[k] /= a[k][k]
	}
	return b
}
