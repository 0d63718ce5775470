package experiment

import (
	"math"

	"netemd/qdisc"
)

// LossLevel is the confidence of Loss's interval, in percent.
const LossLevel = 99.9

// z is the two-sided quantile of the normal distribution at LossLevel.
const z = 3.2905267314919255

// Loss is a loss that was asked for beside the loss that was counted.
type Loss struct {
	// Asked is what was asked for, per direction, with a Correlation.
	Asked       qdisc.Percent `json:"asked_loss_percent"`
	Correlation qdisc.Percent `json:"asked_loss_correlation_percent"`
	// Expected is the share that netem's generator makes of both: Asked without a
	// Correlation.
	Expected qdisc.Percent `json:"expected_loss_percent"`
	// Seen packets passed the fault, Lost of them were dropped.
	Seen uint64 `json:"packets_seen"`
	Lost uint64 `json:"packets_lost"`
	// Measured is Lost / Seen, null without a packet; Low and High bound the true
	// share at LossLevel by Wilson's interval (E. B. Wilson, 1927, "Probable
	// inference, the law of succession, and statistical inference"). The interval is
	// one of independent draws, so it is null with a Correlation.
	Measured *float64 `json:"measured_loss_percent"`
	Low      *float64 `json:"measured_loss_low_percent"`
	High     *float64 `json:"measured_loss_high_percent"`
}

// MeasureLoss puts counters beside what was asked for.
func MeasureLoss(asked, correlation qdisc.Percent, seen, lost uint64) Loss {
	l := Loss{
		Asked: asked, Correlation: correlation, Expected: qdisc.CorrelatedShare(asked, correlation), Seen: seen, Lost: lost,
	}
	if seen == 0 || lost > seen {
		return l
	}
	n, p := float64(seen), float64(lost)/float64(seen)
	l.Measured = new(100 * p)
	if correlation > 0 {
		return l
	}
	centre := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	l.Low, l.High = new(100*max(0, centre-half)), new(100*min(1, centre+half))
	// At the ends the formula is exact but for its rounding.
	if lost == 0 {
		*l.Low = 0
	}
	if lost == seen {
		*l.High = 100
	}
	return l
}

// Judged reports whether the measurement says anything about what was asked for:
// there is one, and its draws do not depend on each other.
func (l Loss) Judged() bool { return l.Low != nil && l.High != nil }

// AsAsked reports whether what was asked for lies inside the interval. A loss that
// is not Judged is not.
func (l Loss) AsAsked() bool {
	return l.Judged() && *l.Low <= float64(l.Expected) && float64(l.Expected) <= *l.High
}

// NoEffect reports that not one packet was lost although a share of zero is
// excluded by what was asked for, at odds of a million to one. Draws that depend
// on each other count for fewer: n with a correlation of r for n(1-r)/(1+r).
func (l Loss) NoEffect() bool {
	r := float64(l.Correlation) / 100
	draws := float64(l.Seen) * (1 - r) / (1 + r)
	return l.Expected > 0 && l.Lost == 0 && l.Seen > 0 && math.Pow(1-float64(l.Expected)/100, draws) < 1e-6
}
