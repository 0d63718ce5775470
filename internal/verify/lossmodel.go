package verify

import (
	"math"

	"netemd/qdisc"
)

// lossModel is what a loss that was asked for does in the long run.
type lossModel struct {
	// share of the packets is hit, 0..1.
	share float64
	// inflation is how many dependent draws are worth one independent one, 1 or more.
	inflation float64
	// burst is the mean number of packets hit one after another, 0 when it is not
	// known or not bounded. Their lengths are geometric if geometric.
	burst     float64
	geometric bool
}

// lossOf is the model of what n asks for.
func lossOf(n qdisc.Netem) lossModel {
	s := n.LossStatistics()
	m := lossModel{share: fraction(s.Share), inflation: max(s.Inflation, 1), burst: s.MeanBurst}
	if math.IsNaN(m.burst) || math.IsInf(m.burst, 0) {
		m.burst = 0
	}
	if g := n.GilbertElliott; g != (qdisc.GilbertElliott{}) {
		m.geometric = g.LossGood == 0 && (g.LossBad == 0 || g.LossBad == 100)
	} else {
		m.geometric = n.LossState == qdisc.LossState{}
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
