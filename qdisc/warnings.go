package qdisc

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// Warnings says what a user should know about n that the numbers alone do not
// tell: side effects, and where netem does not do what its words promise. It
// expects a valid n.
func (n Netem) Warnings() []string {
	var w []string
	warn := func(format string, args ...any) { w = append(w, fmt.Sprintf(format, args...)) }
	if n.Loss >= 100 {
		warn("loss 100%% is a partition: nothing passes in this direction")
	}
	for _, s := range []struct {
		name               string
		share, correlation Percent
	}{
		{"loss", n.Loss, n.LossCorrelation},
		{"duplicate", n.Duplicate, n.DuplicateCorrelation},
		{"reorder", n.Reorder, n.ReorderCorrelation},
		{"corrupt", n.Corrupt, n.CorruptCorrelation},
	} {
		switch {
		case s.share == 0 || s.correlation == 0:
		case s.correlation >= 100:
			warn("%s with correlation 100%% repeats its first draw: it hits either every packet or none", s.name)
		default:
			warn("%s %s with correlation %s hits about %s of the packets: netem's correlated generator does not keep the share",
				s.name, s.share, s.correlation, short(float64(CorrelatedShare(s.share, s.correlation))))
		}
	}
	w = append(w, n.lossWarnings()...)
	if n.Jitter > 0 && n.Rate != 0 {
		warn("with a rate no packet overtakes another: each waits for those before it, so delays come out longer than the jitter asks for")
	}
	if n.Jitter > 0 && n.Rate == 0 {
		warn("jitter %s lets packets overtake each other above about %s packets per second (1/jitter), which TCP takes for loss",
			FormatDuration(n.Jitter), strconv.FormatFloat(max(1, math.Round(1/n.Jitter.Seconds())), 'f', -1, 64))
	}
	if n.correlationFolds() {
		warn("delay correlation %s has hardly an effect: netem folds the correlated 32-bit number into the range of the jitter", n.DelayCorrelation)
	}
	if n.Corrupt > 0 {
		warn("corrupt flips one bit of a packet: where checksums are verified, that packet is dropped, so TCP sees loss")
	}
	w = append(w, n.paceWarnings()...)
	if limit := n.Normalize().Limit; n.Delay > 0 {
		// A queue that holds 1 Gbit/s of 1514-byte frames is worth no warning.
		const enough = 1e9 / 8 / 1514
		if rate := float64(limit) / (n.Delay + n.Jitter).Seconds(); rate < enough {
			warn("limit %d with delay %s holds %.0f packets per second; above that the queue overflows, which is counted apart from loss where the engine can tell",
				limit, FormatDuration(n.Delay), math.Floor(rate))
		}
	}
	return w
}

// lossWarnings say what a loss model comes to.
func (n Netem) lossWarnings() []string {
	var w []string
	model := ""
	switch {
	case n.LossState != LossState{}:
		model = "loss state"
	case n.GilbertElliott != GilbertElliott{}:
		model = "loss gemodel"
	}
	if model != "" {
		s := n.LossStatistics()
		switch {
		case math.IsInf(s.MeanBurst, 1):
			w = append(w, model+" loses every packet in the end: its lossy state is never left")
		case s.Share == 0:
			w = append(w, model+" loses no packet in the end: its lossless state is never left")
		default:
			w = append(w, fmt.Sprintf("%s loses about %s of the packets on average, in bursts of %s packets on average",
				model, short(float64(s.Share)), strconv.FormatFloat(s.MeanBurst, 'g', 3, 64)))
		}
	}
	if n.ECN {
		w = append(w, "ecn marks only packets whose sender offers ECN; all others are dropped, and the kernel's count of drops has both")
	}
	return w
}

// paceWarnings say what rate and slots do beside what they are for.
func (n Netem) paceWarnings() []string {
	var w []string
	if n.Rate != 0 && n.Rate < OrderRate {
		w = append(w, fmt.Sprintf("rate %s with limit %d: a full queue holds packets of %d bytes for %s; what does not fit is dropped and counts as overflow",
			n.Rate, n.Normalize().Limit, packetSize, FormatDuration(n.QueueTime().Round(time.Millisecond))))
	}
	if s := n.Slot; s != (Slot{}) {
		next := "up to " + FormatDuration(max(s.MinDelay, s.MaxDelay))
		if s.Distribution != "" {
			next = fmt.Sprintf("%s with jitter %s (%s)", FormatDuration(s.Delay), FormatDuration(s.Jitter), s.Distribution)
		}
		more := ""
		if s.Packets != 0 || s.Bytes != 0 {
			more = ", or a later one when it is full"
		}
		w = append(w, fmt.Sprintf("slot holds packets until the next slot, %s after the one before%s, in addition to any delay", next, more))
	}
	return w
}

// correlationFolds reports whether netem's delays come out independent in spite of
// their correlation: they are taken modulo a table's length, or twice the jitter in
// nanoseconds (tabledist in net/sched/sch_netem.c), and the part of each number that
// is new, (1-rho)*2^32, is wider than that.
func (n Netem) correlationFolds() bool {
	modulus := 2 * float64(n.Jitter)
	if table := n.JitterTable(); table != nil {
		modulus = float64(len(table))
	}
	return n.DelayCorrelation > 0 && n.Jitter > 0 && modulus < float64(math.MaxUint32-n.DelayCorrelation.Fraction())
}

// short is a share of 0..100 % with two significant digits.
func short(percent float64) string {
	s := strconv.FormatFloat(percent, 'g', 2, 64)
	v, _ := strconv.ParseFloat(s, 64)
	return Percent(v).String()
}

// CorrelatedShare is the share of packets that netem really hits when it is asked
// for p with a correlation.
//
// Its generator (net/sched/sch_netem.c, get_crandom) returns
// x' = (1-rho)*u + rho*x with a uniform u, and a packet is hit when x' <= p. The
// x are no longer uniform but drawn together around 1/2, so less than p is hit
// below 50 % and more above. The result is P(x <= p) in the steady state, found
// by repeating F'(x) = E[F((x - (1-rho)*u) / rho)] on a grid until F stands. With
// a correlation of 100 % every packet repeats the first draw, and the share over
// many runs is p.
func CorrelatedShare(p, correlation Percent) Percent {
	rho := float64(correlation.Fraction()) / math.MaxUint32
	if rho == 0 || rho >= 1 || p <= 0 || p >= 100 {
		return min(max(p, 0), 100)
	}
	const cells = 2048
	// The normal distribution of the same variance is the start: it is the limit
	// for rho near 1, where many rounds would be needed from anywhere else.
	sigma := math.Sqrt((1 - rho) / (1 + rho) / 12)
	f := make([]float64, cells+1)
	for i := range f {
		f[i] = math.Erfc(-(float64(i)/cells-.5)/(sigma*math.Sqrt2)) / 2
	}
	area := make([]float64, cells+1) // the integral of f from 0
	integral := func(v float64) float64 {
		switch {
		case v <= 0:
			return 0
		case v >= 1:
			return area[cells] + v - 1
		}
		i, part := math.Modf(v * cells)
		left, right := f[int(i)], f[int(i)+1]
		return area[int(i)] + part*(left+part*(right-left)/2)/cells
	}
	share := func(x float64) float64 {
		return rho / (1 - rho) * (integral(x/rho) - integral((x-(1-rho))/rho))
	}
	const rounds, still = 200, 1e-8
	next := make([]float64, cells+1)
	for range rounds {
		for i := 1; i <= cells; i++ {
			area[i] = area[i-1] + (f[i-1]+f[i])/2/cells
		}
		moved := 0.0
		for i := range next {
			next[i] = share(float64(i) / cells)
			moved = max(moved, math.Abs(next[i]-f[i]))
		}
		f, next = next, f
		if moved < still {
			break
		}
	}
	x, part := math.Modf(float64(p) / 100 * cells)
	return Percent(100 * (f[int(x)] + part*(f[min(int(x)+1, cells)]-f[int(x)])))
}
