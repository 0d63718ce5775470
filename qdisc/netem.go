package qdisc

import "time"

// DefaultLimit is the queue limit, in packets, that Normalize gives to an
// impairment without one. tc's own default is 1000, which turns a delay into
// hidden loss above 1000 packets per delay period; 100,000 packets hold
// 1 Gbit/s of 1514-byte frames for 1.2 s.
const DefaultLimit = 100_000

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

	// Loss is the share of packets dropped. 0..100 %.
	Loss Percent
	// LossCorrelation makes each draw depend on the one before. 0..100 %. netem's
	// generator then drops less than Loss: 20 % with 25 % drops about 10 %.
	LossCorrelation Percent

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

	// Limit is the queue's size in packets; 0 means DefaultLimit. The kernel would
	// take 0 literally and pass nothing, so an encoded limit is never 0.
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
)

// IsZero reports whether n impairs nothing. Limit and Seed impair nothing by
// themselves.
func (n Netem) IsZero() bool {
	n.Limit, n.Seed = 0, 0
	return n == Netem{}
}

// Queues reports whether n needs packets to be held or rewritten, as opposed to
// only dropped: anything besides loss.
func (n Netem) Queues() bool {
	n.Loss, n.LossCorrelation = 0, 0
	return !n.IsZero()
}

// Patch says which fields of a Netem change; nil leaves a field as it is, so
// that "not given" and "0" stay different.
type Patch struct {
	Delay                *time.Duration
	Jitter               *time.Duration
	DelayCorrelation     *Percent
	Distribution         *Distribution
	Loss                 *Percent
	LossCorrelation      *Percent
	Duplicate            *Percent
	DuplicateCorrelation *Percent
	Reorder              *Percent
	ReorderCorrelation   *Percent
	Gap                  *uint32
	Corrupt              *Percent
	CorruptCorrelation   *Percent
	Limit                *uint32
	Seed                 *uint64
}

// Apply returns n with the fields of p that are set.
func (p Patch) Apply(n Netem) Netem {
	set(&n.Delay, p.Delay)
	set(&n.Jitter, p.Jitter)
	set(&n.DelayCorrelation, p.DelayCorrelation)
	set(&n.Distribution, p.Distribution)
	set(&n.Loss, p.Loss)
	set(&n.LossCorrelation, p.LossCorrelation)
	set(&n.Duplicate, p.Duplicate)
	set(&n.DuplicateCorrelation, p.DuplicateCorrelation)
	set(&n.Reorder, p.Reorder)
	set(&n.ReorderCorrelation, p.ReorderCorrelation)
	set(&n.Gap, p.Gap)
	set(&n.Corrupt, p.Corrupt)
	set(&n.CorruptCorrelation, p.CorruptCorrelation)
	set(&n.Limit, p.Limit)
	set(&n.Seed, p.Seed)
	return n
}

func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}
