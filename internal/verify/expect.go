package verify

import (
	"math"
	"slices"
	"sort"
	"time"

	"netemd/qdisc"
)

// expectation is what an impairment does to packets in the long run, all shares
// 0..1. The order is the one of sch_netem's enqueue: the copy of a duplicate goes
// through loss, corruption, delay and reordering by itself; a packet that is both
// duplicated and lost is sent once.
type expectation struct {
	loss lossModel
	// marks says that what is hit is marked, not dropped (ECN).
	marks bool
	// unseen is the share of packets of which no copy leaves, twice that of which two
	// do.
	unseen, twice  float64
	twiceInflation float64
	// ahead is the share of copies that are sent at once.
	ahead, aheadInflation float64
	// damaged is the share of copies with a flipped bit.
	damaged, damagedInflation float64
}

// expect is what n does to packets of which capable says whether they are ECN-capable.
func expect(n qdisc.Netem, capable bool) expectation {
	e := expectation{loss: lossOf(n), marks: n.ECN && capable}
	duplicate := fraction(qdisc.CorrelatedShare(n.Duplicate, n.DuplicateCorrelation))
	e.twiceInflation = max(correlated(fraction(n.DuplicateCorrelation)), 1)
	drop := e.loss.share
	if e.marks {
		drop = 0
	}
	e.unseen = drop * (1 - duplicate)
	e.twice = duplicate * (1 - drop) * (1 - drop)
	if drop > 0 {
		e.twiceInflation = max(e.twiceInflation, e.loss.inflation)
	}
	if n.Reorder > 0 {
		p := fraction(qdisc.CorrelatedShare(n.Reorder, n.ReorderCorrelation))
		e.ahead = 1 / (1/p + float64(max(n.Gap, 1)-1))
		e.aheadInflation = correlated(fraction(n.ReorderCorrelation))
	}
	e.damaged = fraction(qdisc.CorrelatedShare(n.Corrupt, n.CorruptCorrelation))
	e.damagedInflation = correlated(fraction(n.CorruptCorrelation))
	return e
}

// delays are the delays that n asks for. Unlike qdisc.Delays they know of packets that
// are sent at once, and of the kernel's uniform draw, which is not quite even.
type delays struct {
	n qdisc.Netem
	// table are the samples of the jitter, sorted; nil for a uniform one.
	table []int16
	// ahead is the share that has none.
	ahead float64
}

func delaysOf(n qdisc.Netem, ahead float64) delays {
	return delays{n: n, table: slices.Sorted(slices.Values(n.JitterTable())), ahead: ahead}
}

// drawn is the quantile q, 0..1, of what is drawn for packets that are not sent at
// once. A negative delay is none.
func (d delays) drawn(q float64) time.Duration {
	delay, jitter := float64(d.n.Delay), float64(d.n.Jitter)
	switch {
	case jitter == 0:
	case len(d.table) == 0:
		delay += uniform(q, d.n.Jitter) - jitter
	default:
		i := int(math.Ceil(q*float64(len(d.table)))) - 1
		delay += jitter * float64(d.table[min(max(i, 0), len(d.table)-1)]) / qdisc.TableScale
	}
	return time.Duration(max(delay, 0))
}

// uniform is the quantile q of netem's uniform draw from 0 to twice the jitter: 32
// random bits modulo that, in ns, which favours the lower end where the range is not
// far smaller than 2^32 ns.
func uniform(q float64, jitter time.Duration) float64 {
	const all = 1 << 32
	width := 2 * float64(jitter)
	rounds := math.Floor(all / width)
	rest := all - rounds*width
	if more := rest * (rounds + 1); q*all > more {
		return rest + (q*all-more)/rounds
	}
	return q * all / (rounds + 1)
}

// quantile is that of all packets.
func (d delays) quantile(q float64) time.Duration {
	if q <= d.ahead {
		return 0
	}
	return d.drawn((q - d.ahead) / (1 - d.ahead))
}

// below is the share of all packets with a delay of less than x.
func (d delays) below(x time.Duration) float64 {
	if x <= 0 {
		return 0
	}
	const cells = 1 << 14
	under := float64(sort.Search(cells, func(i int) bool { return d.drawn((float64(i)+.5)/cells) >= x })) / cells
	return d.ahead + (1-d.ahead)*under
}

// folded reports whether netem's delays come out as if they were independent in spite
// of a correlation (see qdisc.Netem.Warnings): they are taken modulo a number that is
// far smaller than the part of each draw that is new.
func folded(n qdisc.Netem) bool {
	modulus := 2 * float64(n.Jitter)
	if n.Distribution != "" && n.Distribution != qdisc.Uniform {
		modulus = 1 << 16
	}
	return modulus < (1-fraction(n.DelayCorrelation))*math.MaxUint32
}

// onWire is how many bytes a Rate counts for a frame of size bytes
// (packet_time_ns in net/sched/sch_netem.c).
func onWire(n qdisc.Netem, size int) int {
	size += int(n.PacketOverhead)
	if cell := int(n.CellSize); cell > 0 {
		size = (size + cell - 1) / cell * (cell + int(n.CellOverhead))
	}
	return max(size, 1)
}
