package qdisc

// Merge combines two impairments of the same packets: every group of fields (a
// value with what refines it, such as delay with jitter, correlation and
// distribution) comes from the one that sets it. All kinds of loss are one group, to
// which ECN belongs; a rate goes with its overheads. Groups that both set are
// returned as conflicts, by name; the first result is then n unchanged.
func (n Netem) Merge(other Netem) (Netem, []string) {
	merged := n
	var conflicts []string
	for _, g := range groups {
		mine, theirs := g.of(n), g.of(other)
		switch {
		case mine != Netem{} && theirs != Netem{}:
			conflicts = append(conflicts, g.name)
		case theirs != Netem{}:
			g.copy(&merged, &other)
		}
	}
	if conflicts != nil {
		return n, conflicts
	}
	return merged, nil
}

// group is a value and what refines it. copy copies its fields.
type group struct {
	name string
	copy func(dst, src *Netem)
}

var groups = []group{
	{"delay", func(d, s *Netem) {
		d.Delay, d.Jitter, d.DelayCorrelation = s.Delay, s.Jitter, s.DelayCorrelation
		d.Distribution, d.Samples = s.Distribution, s.Samples
	}},
	{"loss", func(d, s *Netem) {
		d.Loss, d.LossCorrelation = s.Loss, s.LossCorrelation
		d.LossState, d.GilbertElliott, d.ECN = s.LossState, s.GilbertElliott, s.ECN
	}},
	{"duplicate", func(d, s *Netem) {
		d.Duplicate, d.DuplicateCorrelation = s.Duplicate, s.DuplicateCorrelation
	}},
	{"reorder", func(d, s *Netem) {
		d.Reorder, d.ReorderCorrelation, d.Gap = s.Reorder, s.ReorderCorrelation, s.Gap
	}},
	{"corrupt", func(d, s *Netem) {
		d.Corrupt, d.CorruptCorrelation = s.Corrupt, s.CorruptCorrelation
	}},
	{"rate", func(d, s *Netem) {
		d.Rate, d.PacketOverhead, d.CellSize, d.CellOverhead = s.Rate, s.PacketOverhead, s.CellSize, s.CellOverhead
	}},
	{"slot", func(d, s *Netem) { d.Slot = s.Slot }},
	{"limit", func(d, s *Netem) { d.Limit = s.Limit }},
	{"seed", func(d, s *Netem) { d.Seed = s.Seed }},
}

// of is n's fields of the group alone.
func (g group) of(n Netem) Netem {
	var alone Netem
	g.copy(&alone, &n)
	return alone
}
