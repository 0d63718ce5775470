package qdisc

import (
	"math"
	"math/bits"
	"time"
)

const (
	// packetSize is the size that a limit in packets is reckoned with: Ethernet's
	// largest frame, 1500 bytes with their header.
	packetSize = 1514
	// leastQueue is the smallest limit that Normalize gives: what a TCP sends at once
	// in the beginning (RFC 6928).
	leastQueue = 10
)

// OrderRate is a Rate that costs no packet a nanosecond, so fast that all it does is
// keep the order: a netem with a rate sends no packet before the one that came last,
// so with it a jitter does not reorder.
const OrderRate = MaxRate

// Normalize returns n with what it leaves open filled in, which is what is sent and
// what is read back:
//   - Limit, if 0, is DefaultLimit. With a Rate it is what waits at that rate for
//     DefaultQueue, the Delay and the Jitter together, in packets of 1514 bytes; 10 at
//     least, DefaultLimit at most.
//   - Gap is 1 with a Reorder.
//   - LossBad of a GilbertElliott, if 0, is 100 %.
//   - P13 and P31 of a LossState are a 2^32nd less where rounding would make them more
//     than 100 % with P14 and P32, as with 50 % and 50 %: the kernel's sum of both would be 0
//     (net/sched/sch_netem.c, loss_4state).
//   - MaxDelay of a Slot, if 0, is MinDelay.
//   - A Distribution of Uniform is the empty one.
func (n Netem) Normalize() Netem {
	if n.Limit == 0 {
		n.Limit = n.defaultLimit()
	}
	if n.Reorder > 0 && n.Gap == 0 {
		n.Gap = 1
	}
	if n.GilbertElliott != (GilbertElliott{}) && n.GilbertElliott.LossBad == 0 {
		n.GilbertElliott.LossBad = 100
	}
	n.LossState.P13 = leave(n.LossState.P13, n.LossState.P14)
	n.LossState.P31 = leave(n.LossState.P31, n.LossState.P32)
	if n.Slot.MaxDelay == 0 {
		n.Slot.MaxDelay = n.Slot.MinDelay
	}
	if n.Distribution == Uniform {
		n.Distribution = ""
	}
	return n
}

// leave is p, or what other leaves of 100 %.
func leave(p, other Percent) Percent {
	if left := math.MaxUint32 - other.Fraction(); p.Fraction() > left {
		return PercentOf(left)
	}
	return p
}

func (n Netem) defaultLimit() uint32 {
	if n.Rate == 0 {
		return DefaultLimit
	}
	packets := math.Ceil(packetsIn(n.Rate, DefaultQueue+n.Delay+n.Jitter))
	return uint32(min(max(packets, leastQueue), DefaultLimit))
}

// packetsIn is how many packets of packetSize pass at a rate in a time.
func packetsIn(r Rate, d time.Duration) float64 {
	return float64(r) * d.Seconds() / packetSize
}

// LimitFor is a limit for packets that come at a rate and are delayed: half as many
// again as the delay holds, so that bursts do not overflow, in packets of 1514 bytes
// and rounded up to three digits. 1 Gbit/s delayed by 100 ms is 8257 packets, and
// LimitFor says 12400. Count the jitter into the delay. It is 10 at least.
func LimitFor(r Rate, delay time.Duration) uint32 {
	packets := math.Ceil(math.Ceil(packetsIn(r, max(delay, 0))) * 1.5)
	step := math.Pow(10, max(0, math.Floor(math.Log10(max(packets, 1)))-2))
	return uint32(min(max(math.Ceil(packets/step)*step, leastQueue), math.MaxUint32))
}

// LimitForQueue is the largest limit with which no packet of 1514 bytes or less waits
// longer than wait at a rate: what does not fit is dropped. A packet stays in the queue
// for its Delay and Jitter, too, so those are part of wait. It is 1 at least.
func LimitForQueue(r Rate, wait time.Duration) uint32 {
	hi, lo := bits.Mul64(uint64(r), uint64(max(wait, 0)))
	const perPacket = packetSize * uint64(time.Second)
	if hi >= perPacket {
		return math.MaxUint32
	}
	packets, _ := bits.Div64(hi, lo, perPacket)
	return uint32(min(max(packets, 1), math.MaxUint32))
}

// QueueTime is how long packets of 1514 bytes wait at the Rate in a queue that is
// full, the Limit being what Normalize gives; 0 without a Rate.
func (n Netem) QueueTime() time.Duration {
	if n.Rate == 0 {
		return 0
	}
	limit := uint64(n.Normalize().Limit)
	return time.Duration(min(float64(limit)*n.wireSize(packetSize)/float64(n.Rate)*float64(time.Second), float64(math.MaxInt64)))
}

// wireSize is the size of a packet as the rate counts it, with overheads and cells.
func (n Netem) wireSize(size float64) float64 {
	size += float64(n.PacketOverhead)
	if n.CellSize > 0 {
		size = math.Ceil(size/float64(n.CellSize)) * (float64(n.CellSize) + float64(n.CellOverhead))
	}
	return size
}
