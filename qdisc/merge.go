package qdisc

// Merge combines two impairments of the same packets: every group of fields (a
// value with what refines it, such as delay with jitter, correlation and
// distribution) comes from the one that sets it. All kinds of loss are one group, to
// which ECN belongs; a rate goes with its overheads. Groups that both set are
// returned as conflicts, by name; the first result is then n unchanged.
func (n Netem) Merge(other Netem) (Netem, []string) {
	merged := n
	var conflicts []string
	for g, name := range groups {
		mine, theirs := n.of(g), other.of(g)
		switch {
		case mine != Netem{} && theirs != Netem{}:
			conflicts = append(conflicts, name)
		case theirs != Netem{}:
			merged.copy(g, &other)
		}
	}
	if conflicts != nil {
		return n, conflicts
	}
	return merged, nil
}

// Fill returns n with the groups of fields that it does not set from other: what is set by
// either, and by n where both do.
func (n Netem) Fill(other Netem) Netem {
	for g := range groups {
		if n.of(g) == (Netem{}) {
			n.copy(g, &other)
		}
	}
	return n
}

// groups are the names of the groups: a value and what refines it.
var groups = [...]string{"delay", "loss", "duplicate", "reorder", "corrupt", "rate", "slot", "limit", "seed"}

// copy takes over the fields of a group. It is no table of functions: what they are given
// would be allocated, and impairments are merged at each look at a fault.
func (n *Netem) copy(group int, s *Netem) {
	switch groups[group] {
	case "delay":
		n.Delay, n.Jitter, n.DelayCorrelation = s.Delay, s.Jitter, s.DelayCorrelation
		n.Distribution, n.Samples = s.Distribution, s.Samples
	case "loss":
		n.Loss, n.LossCorrelation = s.Loss, s.LossCorrelation
		n.LossState, n.GilbertElliott, n.ECN = s.LossState, s.GilbertElliott, s.ECN
	case "duplicate":
		n.Duplicate, n.DuplicateCorrelation = s.Duplicate, s.DuplicateCorrelation
	case "reorder":
		n.Reorder, n.ReorderCorrelation, n.Gap = s.Reorder, s.ReorderCorrelation, s.Gap
	case "corrupt":
		n.Corrupt, n.CorruptCorrelation = s.Corrupt, s.CorruptCorrelation
	case "rate":
		n.Rate, n.PacketOverhead, n.CellSize, n.CellOverhead = s.Rate, s.PacketOverhead, s.CellSize, s.CellOverhead
	case "slot":
		n.Slot = s.Slot
	case "limit":
		n.Limit = s.Limit
	case "seed":
		n.Seed = s.Seed
	}
}

// of is n's fields of the group alone.
func (n *Netem) of(group int) Netem {
	var alone Netem
	alone.copy(group, n)
	return alone
}
