package verify

import (
	"fmt"
	"math"
	"slices"
	"time"

	"netemd/qdisc"
)

// judgesQuantiles reports whether it is known how the delays are distributed: with a
// rate or slots, packets also wait for each other.
func (j *judge) judgesQuantiles() bool {
	n := j.netem
	return n.Delay > 0 && n.Rate == 0 && n.Slot == (qdisc.Slot{}) && (n.Jitter == 0 || n.DelayCorrelation == 0 || folded(n))
}

// checkDelay checks how long packets took.
func (j *judge) checkDelay() {
	n := j.netem
	if n.Slot != (qdisc.Slot{}) {
		j.add(Check{Name: "slot_ms", Verdict: Inconclusive, Note: "slots are nothing that is judged, nor are delays beside them but for the shortest"})
	}
	if n.Delay == 0 && n.Rate == 0 {
		return
	}
	asked := delaysOf(n, j.ahead)
	took := make([]time.Duration, 0, len(j.arrivals))
	for _, a := range j.arrivals {
		took = append(took, a.at-j.sent[a.number])
	}
	slices.Sort(took)
	if j.ahead == 0 {
		j.least(asked.drawn(0), took)
	}
	if n.Delay == 0 {
		return
	}
	if !j.judgesQuantiles() {
		if n.Rate == 0 && n.Slot == (qdisc.Slot{}) {
			j.add(Check{
				Name: "delay_p50_ms", Verdict: Inconclusive,
				Note: "with a delay correlation this strong it is not known how delays are distributed; only the shortest is judged",
			})
		}
		return
	}
	for _, q := range []float64{.5, .9, .99} {
		j.quantile(q, asked, took)
	}
	if n.Jitter > 0 {
		j.spread(asked, took)
		j.distance(asked, took)
	}
}

// least checks that no packet was earlier than asked. Nothing is left to chance.
func (j *judge) least(asked time.Duration, took []time.Duration) {
	what := "no packet may be earlier"
	if j.netem.Rate > 0 {
		asked += j.transmission()
		what += " than the delay and its own transmission"
	}
	c := Check{Name: "delay_min_ms", Asked: new(ms(asked)), ConfidencePercent: 100, Note: what}
	if len(took) == 0 {
		c.Verdict, c.Note = Inconclusive, "no packet arrived"
		j.add(c)
		return
	}
	c.Measured = new(ms(took[0]))
	c.Verdict = Pass
	if early := asked - early(asked) - took[0]; early > 0 {
		n, _ := slices.BinarySearch(took, asked-resolution)
		c.Verdict, c.Note = Fail, fmt.Sprintf("%d packets were earlier", max(n, 1))
	}
	j.add(c)
}

// early is how much earlier than asked a packet may seem to be, by the clock.
func early(asked time.Duration) time.Duration {
	return resolution + time.Duration(slew*float64(asked))
}

// tolerance is how much later than asked the quantile q may be for a pass, and how
// much for no failure. What is put down to a late machine without limit proves nothing;
// what its worst stalls explain, wherever they fell, is no failure of the fault.
func (j *judge) tolerance(asked time.Duration, q float64) (pass, open time.Duration) {
	base := slack + time.Duration(slackShare*float64(asked))
	pass = base + min(lateFactor*j.lateAt(q), time.Duration(lateShare*float64(asked)))
	return pass, base + lateFactor*j.lateAt(.99)
}

// busy is the note of a check that only a late machine explains.
func (j *judge) busy() string {
	return fmt.Sprintf("later than asked, but this machine was late itself: by %.1f ms with one in 100 packets", ms(j.lateAt(.99)))
}

// quantile checks one quantile between two of the delays seen.
func (j *judge) quantile(q float64, d delays, took []time.Duration) {
	asked := d.quantile(q)
	c := Check{Name: fmt.Sprintf("delay_p%.0f_ms", 100*q), Asked: new(ms(asked)), ConfidencePercent: j.level()}
	defer func() { j.add(c) }()
	n := len(took)
	if n == 0 {
		c.Verdict, c.Note = Inconclusive, "no packet arrived"
		return
	}
	low, high := quantileRanks(n, q, j.alpha)
	c.Measured = new(ms(took[rank(q, n)-1]))
	if low >= 1 {
		c.Low = new(ms(took[low-1]))
	}
	if high <= n {
		c.High = new(ms(took[high-1]))
	}
	late, open := j.tolerance(asked, q)
	c.Note = fmt.Sprintf("up to %.1f ms more are put down to scheduling", ms(late))
	// Without jitter nothing can be too early that the shortest delay does not tell.
	needsHigh := j.netem.Jitter > 0 || j.ahead > 0
	switch {
	case low >= 1 && took[low-1] > asked+open, high <= n && took[high-1] < asked-early(asked):
		c.Verdict = Fail
	case low >= 1 && took[low-1] > asked+late:
		c.Verdict, c.Note = Inconclusive, j.busy()
	case low < 1, high > n && needsHigh:
		c.Verdict = Inconclusive
		least := math.Ceil(math.Log(j.alpha/2) / math.Log(max(q, 1-q)))
		c.Note = fmt.Sprintf("too few packets to bound this quantile: %.0f that arrive would do", least)
	default:
		c.Verdict = Pass
	}
}

// rank is the order statistic, from 1 on, that stands for the quantile q of n.
func rank(q float64, n int) int { return min(max(int(math.Ceil(q*float64(n))), 1), n) }

// spread checks the width of the middle half.
func (j *judge) spread(d delays, took []time.Duration) {
	asked := d.quantile(.75) - d.quantile(.25)
	c := Check{Name: "jitter_p25_to_p75_ms", Asked: new(ms(asked)), ConfidencePercent: j.level()}
	defer func() { j.add(c) }()
	n := len(took)
	low1, high1 := quantileRanks(n, .25, j.alpha/2)
	low3, high3 := quantileRanks(n, .75, j.alpha/2)
	if n == 0 || low1 < 1 || high3 > n {
		c.Verdict, c.Note = Inconclusive, "too few packets arrived"
		return
	}
	c.Measured = new(ms(took[rank(.75, n)-1] - took[rank(.25, n)-1]))
	low, high := max(took[low3-1]-took[high1-1], 0), took[high3-1]-took[low1-1]
	c.Low, c.High = new(ms(low)), new(ms(high))
	off, open := j.tolerance(asked, .75)
	c.Note = fmt.Sprintf("up to %.1f ms either way are put down to scheduling", ms(off))
	switch {
	case asked < low-open || asked > high+open:
		c.Verdict = Fail
	case asked < low-off || asked > high+off:
		c.Verdict, c.Note = Inconclusive, j.busy()
	default:
		c.Verdict = Pass
	}
}

// distance checks the whole distribution by its largest distance from the one asked
// for, where that is not put down to scheduling.
func (j *judge) distance(d delays, took []time.Duration) {
	n := len(took)
	bound := dkw(n, j.alpha)
	c := Check{Name: "delay_distance_percent", Asked: new(0.), ConfidencePercent: j.level()}
	defer func() { j.add(c) }()
	if n == 0 {
		c.Verdict, c.Note = Inconclusive, "no packet arrived"
		return
	}
	// The table that is asked for has steps itself.
	const steps = 1. / 4096
	most, least := 0.0, 0.0
	for i, t := range took {
		soon := float64(i+1)/float64(n) - d.below(t+early(t))
		off, open := j.tolerance(t, float64(i)/float64(n))
		late := func(off time.Duration) float64 { return d.below(t-off) - float64(i)/float64(n) }
		most = max(most, soon-steps, late(off)-steps)
		least = max(least, soon-steps, late(open)-steps)
	}
	c.Measured, c.Low, c.High = new(100*most), new(0.), new(100*bound)
	c.Note = "distance of the distributions after scheduling; the bound is Dvoretzky's, Kiefer's and Wolfowitz's"
	switch {
	case least > bound:
		c.Verdict = Fail
	case most > bound:
		c.Verdict, c.Note = Inconclusive, j.busy()
	default:
		c.Verdict = Pass
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
