package qdisc

// Differences names the fields in which the impairment that the kernel gave back
// is not the one that was asked for, within the encoding's resolution (a 2^32nd
// of a share). The distribution is not compared, since the kernel never dumps
// it; nor is the seed when none was asked for, since it then draws its own.
func (n Netem) Differences(got Netem) []string {
	n, got = n.Normalize(), got.Normalize()
	var fields []string
	differ := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	share := func(name string, want, got Percent) { differ(name, want.Fraction() == got.Fraction()) }
	differ("delay", n.Delay == got.Delay)
	differ("delay.jitter", n.Jitter == got.Jitter)
	share("delay.correlation", n.DelayCorrelation, got.DelayCorrelation)
	share("loss", n.Loss, got.Loss)
	share("loss.correlation", n.LossCorrelation, got.LossCorrelation)
	share("duplicate", n.Duplicate, got.Duplicate)
	share("duplicate.correlation", n.DuplicateCorrelation, got.DuplicateCorrelation)
	share("reorder", n.Reorder, got.Reorder)
	share("reorder.correlation", n.ReorderCorrelation, got.ReorderCorrelation)
	differ("reorder.gap", n.Gap == got.Gap)
	share("corrupt", n.Corrupt, got.Corrupt)
	share("corrupt.correlation", n.CorruptCorrelation, got.CorruptCorrelation)
	differ("limit", n.Limit == got.Limit)
	differ("seed", n.Seed == 0 || n.Seed == got.Seed)
	return fields
}
