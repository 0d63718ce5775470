package qdisc

// ParseTCPatch reads the same text as ParseTC as a change of what it names: each word with
// all that belongs to it, so that a delay without a jitter takes the jitter away. What a
// word needs beside it may stand in the Netem that is changed: "reorder 25%" is fine where
// there is a delay. So Netem.Validate is for the caller, after Patch.Apply.
func ParseTCPatch(text string) (Patch, error) {
	p, err := parseTC(text)
	if err != nil {
		return Patch{}, err
	}
	return p.patch(), nil
}

// patch is what the options that were given say.
func (p *tcParser) patch() Patch {
	n := p.netem
	var c Patch
	for option := range p.given {
		switch option {
		case "delay":
			shape := n.Distribution
			if shape == "" && n.Jitter != 0 {
				shape = Uniform
			}
			c.Delay, c.Jitter, c.DelayCorrelation, c.Distribution = &n.Delay, &n.Jitter, &n.DelayCorrelation, &shape
		case "distribution":
			c.Distribution = &n.Distribution
		case "loss":
			switch {
			case n.LossState != LossState{}:
				c.LossState = &n.LossState
			case n.GilbertElliott != GilbertElliott{}:
				c.GilbertElliott = &n.GilbertElliott
			default:
				c.Loss, c.LossCorrelation = &n.Loss, &n.LossCorrelation
			}
		case "ecn":
			c.ECN = &n.ECN
		case "reorder":
			c.Reorder, c.ReorderCorrelation = &n.Reorder, &n.ReorderCorrelation
		case "gap":
			c.Gap = &n.Gap
		case "duplicate":
			c.Duplicate, c.DuplicateCorrelation = &n.Duplicate, &n.DuplicateCorrelation
		case "corrupt":
			c.Corrupt, c.CorruptCorrelation = &n.Corrupt, &n.CorruptCorrelation
		case "rate":
			c.Rate, c.PacketOverhead, c.CellSize, c.CellOverhead = &n.Rate, &n.PacketOverhead, &n.CellSize, &n.CellOverhead
		case "slot":
			c.Slot = &n.Slot
		case "limit":
			c.Limit = &n.Limit
		case "seed":
			c.Seed = &n.Seed
		}
	}
	return c
}
