package qdisc

import "time"

// Patch says which fields of a Netem change; nil leaves a field as it is, so
// that "not given" and "0" stay different.
type Patch struct {
	Delay                *time.Duration
	Jitter               *time.Duration
	DelayCorrelation     *Percent
	Distribution         *Distribution
	Samples              *Samples
	Loss                 *Percent
	LossCorrelation      *Percent
	LossState            *LossState
	GilbertElliott       *GilbertElliott
	ECN                  *bool
	Duplicate            *Percent
	DuplicateCorrelation *Percent
	Reorder              *Percent
	ReorderCorrelation   *Percent
	Gap                  *uint32
	Corrupt              *Percent
	CorruptCorrelation   *Percent
	Rate                 *Rate
	PacketOverhead       *int32
	CellSize             *uint32
	CellOverhead         *int32
	Slot                 *Slot
	Limit                *uint32
	Seed                 *uint64
}

// Apply returns n with the fields of p that are set.
//
// A loss of one kind replaces the others, so of Loss, LossState and GilbertElliott
// only what p sets is left; one that p sets to zero takes its correlation and ECN
// along. In the same way a Distribution other than Custom drops the Samples, Samples
// alone make the Distribution Custom, and a Rate of 0 drops the overheads. What p
// sets itself always stays, for Validate to judge.
func (p Patch) Apply(n Netem) Netem {
	p.replace(&n)
	set(&n.Delay, p.Delay)
	set(&n.Jitter, p.Jitter)
	set(&n.DelayCorrelation, p.DelayCorrelation)
	set(&n.Distribution, p.Distribution)
	set(&n.Samples, p.Samples)
	set(&n.Loss, p.Loss)
	set(&n.LossCorrelation, p.LossCorrelation)
	set(&n.LossState, p.LossState)
	set(&n.GilbertElliott, p.GilbertElliott)
	set(&n.ECN, p.ECN)
	set(&n.Duplicate, p.Duplicate)
	set(&n.DuplicateCorrelation, p.DuplicateCorrelation)
	set(&n.Reorder, p.Reorder)
	set(&n.ReorderCorrelation, p.ReorderCorrelation)
	set(&n.Gap, p.Gap)
	set(&n.Corrupt, p.Corrupt)
	set(&n.CorruptCorrelation, p.CorruptCorrelation)
	set(&n.Rate, p.Rate)
	set(&n.PacketOverhead, p.PacketOverhead)
	set(&n.CellSize, p.CellSize)
	set(&n.CellOverhead, p.CellOverhead)
	set(&n.Slot, p.Slot)
	set(&n.Limit, p.Limit)
	set(&n.Seed, p.Seed)
	return n
}

// replace clears what cannot stand beside what p sets.
func (p Patch) replace(n *Netem) {
	if p.Loss != nil || p.LossState != nil || p.GilbertElliott != nil {
		random := p.Loss != nil && *p.Loss != 0
		correlation, ecn := n.LossCorrelation, n.ECN
		n.clearLoss()
		if random {
			n.LossCorrelation = correlation
		}
		n.ECN = ecn && (random || p.LossState != nil && *p.LossState != LossState{} ||
			p.GilbertElliott != nil && *p.GilbertElliott != GilbertElliott{})
	}
	if p.Distribution != nil && *p.Distribution != Custom {
		n.Samples = ""
	}
	if p.Samples != nil && *p.Samples != "" && p.Distribution == nil {
		n.Distribution = Custom
	}
	if p.Rate != nil && *p.Rate == 0 {
		n.PacketOverhead, n.CellSize, n.CellOverhead = 0, 0, 0
	}
}

// clearLoss takes away every kind of loss, and the correlation.
func (n *Netem) clearLoss() {
	n.Loss, n.LossCorrelation = 0, 0
	n.LossState, n.GilbertElliott = LossState{}, GilbertElliott{}
}

func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}
