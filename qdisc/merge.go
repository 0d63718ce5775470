package qdisc

// Merge combines two impairments of the same packets: every group of fields (a
// value with what refines it, such as delay with jitter, correlation and
// distribution) comes from the one that sets it. Groups that both set are
// returned as conflicts, by name; the first result is then n unchanged.
func (n Netem) Merge(other Netem) (Netem, []string) {
	merged := n
	var conflicts []string
	take := func(name string, mine, theirs bool, adopt func()) {
		switch {
		case mine && theirs:
			conflicts = append(conflicts, name)
		case theirs:
			adopt()
		}
	}
	take("delay", n.delay() != Netem{}, other.delay() != Netem{}, func() {
		merged.Delay, merged.Jitter = other.Delay, other.Jitter
		merged.DelayCorrelation, merged.Distribution = other.DelayCorrelation, other.Distribution
	})
	take("loss", n.Loss != 0 || n.LossCorrelation != 0, other.Loss != 0 || other.LossCorrelation != 0, func() {
		merged.Loss, merged.LossCorrelation = other.Loss, other.LossCorrelation
	})
	take("duplicate", n.Duplicate != 0 || n.DuplicateCorrelation != 0, other.Duplicate != 0 || other.DuplicateCorrelation != 0, func() {
		merged.Duplicate, merged.DuplicateCorrelation = other.Duplicate, other.DuplicateCorrelation
	})
	take("reorder", n.Reorder != 0 || n.ReorderCorrelation != 0 || n.Gap != 0, other.Reorder != 0 || other.ReorderCorrelation != 0 || other.Gap != 0, func() {
		merged.Reorder, merged.ReorderCorrelation, merged.Gap = other.Reorder, other.ReorderCorrelation, other.Gap
	})
	take("corrupt", n.Corrupt != 0 || n.CorruptCorrelation != 0, other.Corrupt != 0 || other.CorruptCorrelation != 0, func() {
		merged.Corrupt, merged.CorruptCorrelation = other.Corrupt, other.CorruptCorrelation
	})
	take("limit", n.Limit != 0, other.Limit != 0, func() { merged.Limit = other.Limit })
	take("seed", n.Seed != 0, other.Seed != 0, func() { merged.Seed = other.Seed })
	if conflicts != nil {
		return n, conflicts
	}
	return merged, nil
}

// delay is n's delay group alone.
func (n Netem) delay() Netem {
	return Netem{Delay: n.Delay, Jitter: n.Jitter, DelayCorrelation: n.DelayCorrelation, Distribution: n.Distribution}
}
