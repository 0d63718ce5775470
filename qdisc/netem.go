package qdisc

import "time"

// DefaultLimit is the queue limit, in packets, that Normalize gives to an
// impairment without one. tc's own default is 1000, which turns a delay into
// hidden loss above 1000 packets per delay period; 100,000 packets hold
// 1 Gbit/s of 1514-byte frames for 1.2 s.
const DefaultLimit = 100_000

// DefaultQueue is how long a packet waits in a full queue at a Rate when no limit is
// given: with more, a slow rate turns into a delay without end.
const DefaultQueue = time.Second

// Netem is one whole impairment, with the meaning of the kernel's sch_netem
// (include/uapi/linux/pkt_sched.h, struct tc_netem_qopt and its attributes).
// The zero value impairs nothing. State is always replaced whole, never patched
// in the kernel; Patch changes a value before it is sent.
type Netem struct {
	// Delay is added to every packet, one way. 0 s or more; resolution 1 ns.
	Delay time.Duration
	// Jitter varies Delay by up to this much either way. It needs a Delay, must
	// not exceed it, and lets packets overtake each other.
	Jitter time.Duration
	// DelayCorrelation makes each delay depend on the one before. 0..100 %.
	DelayCorrelation Percent
	// Distribution shapes Jitter; empty means Uniform.
	Distribution Distribution

	// Samples is the table of a Custom distribution, empty for every other.
	Samples Samples

	// Loss is the share of packets dropped, each by itself. 0..100 %. At most one of
	// Loss, LossState and GilbertElliott is given.
	Loss Percent
	// LossCorrelation makes each draw depend on the one before. 0..100 %. netem's
	// generator then drops less than Loss: 20 % with 25 % drops about 10 %.
	LossCorrelation Percent

	// LossState drops by the 4-state Markov model of tc's "loss state".
	LossState LossState
	// GilbertElliott drops in bursts, by tc's "loss gemodel".
	GilbertElliott GilbertElliott
	// ECN marks packets that carry ECN (RFC 3168) as Congestion Experienced instead of
	// dropping them; others are dropped. It needs a loss of any kind.
	ECN bool

	// Duplicate is the share of packets sent twice. 0..100 %.
	Duplicate Percent
	// DuplicateCorrelation makes each draw depend on the one before. 0..100 %.
	DuplicateCorrelation Percent

	// Reorder is the share of packets sent at once, ahead of the delayed ones. It
	// needs a Delay. 0..100 %.
	Reorder Percent
	// ReorderCorrelation makes each draw depend on the one before. 0..100 %.
	ReorderCorrelation Percent
	// Gap reorders only every Gap-th packet; 0 with a Reorder means 1, as in tc.
	Gap uint32

	// Corrupt is the share of packets in which one random bit is flipped. 0..100 %.
	Corrupt Percent
	// CorruptCorrelation makes each draw depend on the one before. 0..100 %.
	CorruptCorrelation Percent

	// Rate is how fast packets leave; 0 is no limit.
	Rate Rate
	// PacketOverhead is added to each packet's size, in bytes; negative takes away. It
	// needs a Rate, as do the next two.
	PacketOverhead int32
	// CellSize is the size of the cells, in bytes, that a packet is cut into, as ATM's
	// 48; 0 is none. CellOverhead is added to each cell.
	CellSize     uint32
	CellOverhead int32

	// Slot gathers packets and sends them together.
	Slot Slot

	// Limit is the queue's size in packets; 0 means what Normalize gives: enough for
	// DefaultQueue at a Rate, DefaultLimit otherwise. The kernel would take 0 literally
	// and pass nothing, so an encoded limit is never 0.
	Limit uint32

	// Seed makes the random draws repeatable where the engine supports it; 0 means
	// a random seed. netem takes it from Linux 6.6 on (TCA_NETEM_PRNG_SEED).
	Seed uint64
}

// Distribution names the shape of the jitter.
type Distribution string

// The distributions that netem's users know. Uniform is what the kernel does
// without a table.
const (
	Uniform      Distribution = "uniform"
	Normal       Distribution = "normal"
	Pareto       Distribution = "pareto"
	ParetoNormal Distribution = "paretonormal"
	// Custom is a table of the user's own, in Samples.
	Custom Distribution = "custom"
)

// LossState is netem's 4-state Markov model (S. Salsano et al., "Definition of a
// general and intuitive loss model for packet networks"): state 1 good, 4 an isolated
// loss, 3 a burst of losses, 2 good within a burst. Each field is the chance, for each
// packet, to go from the first state to the second. 0..100 %.
type LossState struct {
	P13, P31, P32, P23, P14 Percent
}

// GilbertElliott has a good and a bad state, each with a loss of its own.
type GilbertElliott struct {
	// P is the chance, for each packet, to go from good to bad; R from bad to good.
	// 0..100 %. A burst is 1/R packets long on average.
	P, R Percent
	// LossBad is the loss in the bad state, tc's 1-h; 0 means 100 %. LossGood is the
	// one in the good state, tc's 1-k.
	LossBad, LossGood Percent
}

// Slot makes packets leave in bunches, as a radio's time slots do: nothing leaves
// until the slot's time, which is drawn anew for each. The zero value is no slots.
type Slot struct {
	// MinDelay and MaxDelay are between the slots, drawn uniformly. MaxDelay of 0
	// means MinDelay.
	MinDelay, MaxDelay time.Duration
	// Distribution, if not empty, shapes the times between slots instead: around Delay
	// by Jitter. It is any but Uniform; Samples is the table of a Custom one.
	Distribution  Distribution
	Delay, Jitter time.Duration
	Samples       Samples
	// Packets and Bytes bound what leaves in one slot; 0 is no bound.
	Packets uint32
	Bytes   Bytes
}

// Samples is the table of a custom distribution: signed 16-bit numbers in the
// machine's byte order, in units of jitter/TableScale, packed into a string so that
// impairments can be compared. ParseSamples reads tc's files.
type Samples string

// IsZero reports whether n impairs nothing. ECN, Limit and Seed impair nothing by
// themselves.
func (n Netem) IsZero() bool {
	n.ECN, n.Limit, n.Seed = false, 0, 0
	return n == Netem{}
}

// Queues reports whether n needs packets to be held or rewritten, as opposed to
// only dropped: anything besides loss without ECN.
func (n Netem) Queues() bool {
	if n.ECN {
		return true
	}
	n.clearLoss()
	return !n.IsZero()
}
