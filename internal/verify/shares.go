package verify

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// share checks that k of n is what a probability p, 0..1, makes likely, when every
// inflation draws count for one. off is how far p itself may be from what counts as
// a hit, on either side.
func (j *judge) share(name string, p float64, k, n int, inflation, off float64, note string) {
	c := Check{Name: name, Asked: new(100 * p), ConfidencePercent: j.level(), Note: note}
	defer func() { j.add(c) }()
	if n == 0 {
		c.Verdict = Inconclusive
		c.Note = joined("no packet to count", note)
		return
	}
	draws := float64(n) / inflation
	low, high := clopperPearson(float64(k)/inflation, draws, j.alpha)
	if p == 0 || p == 1 { // nothing is left to chance
		low, high = clopperPearson(float64(k), float64(n), j.alpha)
	}
	c.Measured, c.Low, c.High = new(100*float64(k)/float64(n)), new(100*low), new(100*high)
	const rounding = 1e-12
	rare := min(p, 1-p)
	switch {
	case p+off < low-rounding || p-off > high+rounding:
		c.Verdict = Fail
	case rare > 0 && draws*rare < enough-1e-6:
		c.Verdict = Inconclusive
		c.Note = joined(fmt.Sprintf("too few packets for a share this small: %s would do", packetsFor(rare, inflation)), note)
	default:
		c.Verdict = Pass
	}
}

// packetsFor is how many packets lead one to expect enough events.
func packetsFor(rare, inflation float64) string {
	if n := math.Ceil(enough * inflation / rare); n <= MaxPackets {
		return fmt.Sprintf("%.0f packets", n)
	}
	return fmt.Sprintf("no number up to %d", MaxPackets)
}

func joined(a, b string) string {
	if b == "" {
		return a
	}
	return a + "; " + b
}

func (j *judge) checkLoss() {
	unseen := 0
	for _, n := range j.copies {
		unseen += want(n == 0)
	}
	inflation, note := 1.0, ""
	if j.unseen > 0 {
		inflation = j.loss.inflation
	}
	switch {
	case j.netem.LossCorrelation > 0 && j.netem.Loss > 0:
		note = "asked is what netem's correlated generator makes of it"
	case inflation > 1:
		note = "losses come in bursts: " + effective(len(j.sent), inflation)
	case j.marks:
		note = "packets with ECN are marked, not dropped"
	}
	if j.netem.Duplicate > 0 && j.unseen > 0 {
		note = joined("a packet of which one of two copies is lost arrives", note)
	}
	j.share("loss_percent", j.unseen, unseen, len(j.sent), inflation, j.damaged*j.blind, note)
	c := &j.checks[len(j.checks)-1]
	if v, _ := j.overflowed(); v != "" {
		c.Verdict, c.Note = Inconclusive, "packets that a full queue dropped are among the missing"
	} else if j.thrown() != "" {
		c.Verdict, c.Note = Inconclusive, "packets that were thrown away beside the fault are among the missing"
	} else if j.missed > 0 {
		c.Verdict, c.Note = Inconclusive, fmt.Sprintf("the capture had no room for %d frames, which may be among the missing", j.missed)
	}
}

func effective(n int, inflation float64) string {
	return fmt.Sprintf("%d packets count as %.0f independent ones", n, float64(n)/inflation)
}

// checkMarks checks ECN.
func (j *judge) checkMarks() {
	if !j.marks {
		return
	}
	came, marked := make(map[int]bool), make(map[int]bool)
	for _, a := range j.arrivals {
		came[a.number] = true
		if a.marked {
			marked[a.number] = true
		}
	}
	note := "packets with ECN (RFC 3168) that carry Congestion Experienced"
	j.share("ecn_mark_percent", j.loss.share, len(marked), len(came), j.loss.inflation, 0, note)
}

// judgesBurst reports whether bursts can be told: a duplicate may close a hole, and
// correlated draws have no known burst.
func (j *judge) judgesBurst() bool {
	m := j.loss
	if m.share <= 0 || m.share >= 1 || m.burst <= 0 || j.netem.Duplicate > 0 {
		return false
	}
	// Bursts that nobody asked for need no verdict where they are too few.
	return j.netem.Loss == 0 || j.bursts() >= enough
}

// bursts are how many of them are expected.
func (j *judge) bursts() float64 { return float64(len(j.sent)) * j.loss.share / j.loss.burst }

// checkBurst checks how many packets in a row are hit.
func (j *judge) checkBurst() {
	if !j.judgesBurst() {
		return
	}
	m := j.loss
	var lengths []float64
	run := 0
	for _, hit := range j.hits {
		if hit {
			run++
			continue
		}
		if run > 0 {
			lengths = append(lengths, float64(run))
		}
		run = 0
	}
	c := Check{Name: "mean_burst_packets", Asked: new(m.burst), ConfidencePercent: j.level()}
	defer func() { j.unless(&c); j.add(c) }()
	bursts, total := float64(len(lengths)), 0.0
	for _, l := range lengths {
		total += l
	}
	expected := j.bursts()
	if bursts > 0 {
		c.Measured = new(total / bursts)
	}
	few := fmt.Sprintf("too few bursts: %s would do", packetsFor(m.share/m.burst, 1))
	if v, _ := j.overflowed(); v != "" || j.thrown() != "" || j.missed > 0 {
		c.Verdict, c.Note = Inconclusive, "other packets are among the missing"
		return
	}
	if bursts < 2 {
		c.Verdict, c.Note = Inconclusive, few
		return
	}
	if m.geometric {
		// Each hit ends its burst with the same chance, 1/burst.
		low, high := clopperPearson(bursts, total, j.alpha)
		c.Low, c.High = new(1/high), new(1/max(low, 1e-12))
	} else {
		// Lengths of several kinds: by the central limit, with their own variance.
		mean, square := total/bursts, 0.0
		for _, l := range lengths {
			square += (l - mean) * (l - mean)
		}
		half := normalBound(j.alpha) * math.Sqrt(square/(bursts-1)/bursts)
		c.Low, c.High = new(max(1, mean-half)), new(mean+half)
		c.Note = "bound by the variance of the bursts seen"
	}
	switch {
	case m.burst < *c.Low-1e-9 || m.burst > *c.High+1e-9:
		c.Verdict = Fail
		if !m.geometric && expected < 3*enough {
			c.Verdict, c.Note = Inconclusive, few
		}
	case expected < enough:
		c.Verdict, c.Note = Inconclusive, few
	default:
		c.Verdict = Pass
	}
}

func (j *judge) checkDuplicate() {
	twice := 0
	for _, n := range j.copies {
		twice += want(n > 1)
	}
	if j.netem.Duplicate == 0 && twice == 0 {
		return
	}
	note := ""
	if j.twice < fraction(j.netem.Duplicate) && j.netem.Duplicate > 0 && j.netem.DuplicateCorrelation == 0 {
		note = "of a duplicate, each copy may be lost by itself"
	}
	j.share("duplicate_percent", j.twice, twice, len(j.sent), j.twiceInflation, 0, note)
}

func (j *judge) checkCorrupt() {
	damaged := 0
	for _, a := range j.arrivals {
		damaged += want(a.damaged)
	}
	if j.netem.Corrupt == 0 && damaged == 0 {
		return
	}
	note := "of those that arrived, by comparing every bit"
	if j.blind > 0 {
		note = fmt.Sprintf("of those that arrived; a flip in %s %% of the bits is not seen", number(100*j.blind))
	}
	j.share("corrupt_percent", j.damaged, damaged, len(j.arrivals), j.damagedInflation, j.damaged*j.blind, note)
}

// checkReorder checks the share of packets that are sent at once while others wait.
func (j *judge) checkReorder() {
	n := j.netem
	if n.Reorder == 0 {
		return
	}
	// At once is faster than half of what others wait.
	bound := n.Delay / 2
	d := delaysOf(n, j.ahead)
	p := d.below(bound)
	// A packet sent at once may be late by scheduling, and then is not told.
	late := j.shareLater(bound)
	early, overtaking, last := 0, 0, -1
	for _, a := range j.arrivals {
		early += want(a.at-j.sent[a.number] < bound)
		overtaking += want(a.number < last)
		last = max(last, a.number)
	}
	note := fmt.Sprintf("sent at once: took less than %v, half of the delay; %d packets came after a later one", bound, overtaking)
	if bound < slack+j.lateAt(.99) {
		j.add(Check{
			Name: "reorder_percent", Asked: new(100 * p), ConfidencePercent: j.level(), Verdict: Inconclusive,
			Note: fmt.Sprintf("a delay of %v is too short to tell what was sent at once on this machine", n.Delay),
		})
		return
	}
	j.share("reorder_percent", p, early, len(j.arrivals), j.aheadInflation, p*late, note)
	j.unless(&j.checks[len(j.checks)-1])
}

// lateAt is the quantile q of how late the sender's own timers were.
func (j *judge) lateAt(q float64) time.Duration {
	if len(j.late) == 0 {
		return 0
	}
	return j.late[min(int(q*float64(len(j.late))), len(j.late)-1)]
}

// shareLater is the share of the sender's timers that were late by more than d.
func (j *judge) shareLater(d time.Duration) float64 {
	if len(j.late) == 0 {
		return 0
	}
	i, _ := slices.BinarySearch(j.late, d)
	return float64(len(j.late)-i) / float64(len(j.late))
}
