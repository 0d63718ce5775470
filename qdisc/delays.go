package qdisc

import (
	"math"
	"slices"
	"sort"
	"time"
)

// Delays is the distribution of the delay that a Netem gives to packets: Delay with
// Jitter in the shape of its Distribution, not less than 0, and whatever correlation in
// the long run (a correlation draws the kernel's uniform numbers together, which is not
// reckoned with). What Rate, Slot and a wait behind other packets add is not part of it,
// nor are packets that Reorder sends at once.
type Delays struct {
	delay, jitter time.Duration
	sorted        []time.Duration // of a table, nil for a uniform jitter
}

// Delays returns the distribution of n's delays.
func (n Netem) Delays() Delays {
	d := Delays{delay: n.Delay, jitter: n.Jitter}
	if table := n.JitterTable(); table != nil {
		d.sorted = make([]time.Duration, len(table))
		for k, t := range table {
			d.sorted[k] = max(0, n.Delay+time.Duration(scaled(int64(n.Jitter), t)))
		}
		slices.Sort(d.sorted)
	}
	return d
}

// DelayQuantile returns the delay that the share q, 0..1, of n's packets do not
// exceed.
func (n Netem) DelayQuantile(q float64) time.Duration { return n.Delays().Quantile(q) }

// draws is how many different numbers the kernel draws.
const draws = 1 << 32

// Quantile returns the least delay that the share q, 0..1, of the packets do not
// exceed.
func (d Delays) Quantile(q float64) time.Duration {
	q = min(max(q, 0), 1)
	switch {
	case d.sorted != nil:
		return d.sorted[max(0, int(math.Ceil(q*float64(len(d.sorted))))-1)]
	case d.jitter == 0:
		return d.delay
	}
	width, full, more := d.remainders()
	n := int64(math.Ceil(q * draws)) // so many draws are at most the quantile
	k := (n + full) / (full + 1)
	if k > more {
		k = more + (n-more*(full+1)+full-1)/full
	}
	return max(0, d.delay-d.jitter+time.Duration(min(max(k-1, 0), width-1)))
}

// CDF returns the share, 0..1, of the packets with a delay of at most t.
func (d Delays) CDF(t time.Duration) float64 {
	switch {
	case t < 0:
		return 0
	case d.sorted != nil:
		above := sort.Search(len(d.sorted), func(k int) bool { return d.sorted[k] > t })
		return float64(above) / float64(len(d.sorted))
	case d.jitter == 0:
		return float64(flag(t >= d.delay))
	}
	width, full, more := d.remainders()
	k := min(max(int64(t-d.delay+d.jitter)+1, 0), width)
	return float64(k*full+min(k, more)) / draws
}

// remainders says how the kernel draws a uniform jitter: as a 32-bit number modulo width,
// twice the jitter in nanoseconds (tabledist in net/sched/sch_netem.c). Each remainder
// comes from full numbers, and the first more of them from one more, so that above some
// 100 ms the low delays come visibly more often.
func (d Delays) remainders() (width, full, more int64) {
	width = 2 * int64(d.jitter)
	return width, draws / width, draws % width
}
