package cli

import (
	"strings"

	"netemd/qdisc"
)

// parseShape reads the name of a shape; a table of the user's own has a flag of its own.
func parseShape(s string) (qdisc.Distribution, error) {
	d, err := qdisc.ParseDistribution(s)
	if err != nil || d == qdisc.Custom {
		return "", &qdisc.FieldError{Value: s, Want: "uniform, normal, pareto or paretonormal; for a table of your own, --distribution-file FILE"}
	}
	return d, nil
}

// parseSlotShape reads SHAPE,DELAY,JITTER.
func parseSlotShape(s string) (qdisc.Slot, error) {
	shape, _, _ := strings.Cut(s, ",")
	slot, err := qdisc.ParseSlot(s)
	if _, shapeErr := parseShape(shape); err != nil || shapeErr != nil {
		return qdisc.Slot{}, &qdisc.FieldError{Value: s, Want: "uniform, normal, pareto or paretonormal, then a delay and a jitter, such as normal,20ms,5ms"}
	}
	return slot, nil
}

// parseTC reads an impairment in tc's words as a patch of what it names: each word with
// all that belongs to it, so that a delay without a jitter takes the jitter away.
func parseTC(text string) (qdisc.Patch, error) {
	n, err := qdisc.ParseTC(text)
	if err != nil {
		return qdisc.Patch{}, err
	}
	var p qdisc.Patch
	for name := range tcNames(text) {
		switch name {
		case "delay":
			shape := n.Distribution
			if shape == "" && n.Jitter != 0 {
				shape = qdisc.Uniform
			}
			p.Delay, p.Jitter, p.DelayCorrelation, p.Distribution = &n.Delay, &n.Jitter, &n.DelayCorrelation, &shape
		case "loss":
			switch {
			case n.LossState != qdisc.LossState{}:
				p.LossState = &n.LossState
			case n.GilbertElliott != qdisc.GilbertElliott{}:
				p.GilbertElliott = &n.GilbertElliott
			default:
				p.Loss, p.LossCorrelation = &n.Loss, &n.LossCorrelation
			}
		case "ecn":
			p.ECN = &n.ECN
		case "reorder":
			p.Reorder, p.ReorderCorrelation = &n.Reorder, &n.ReorderCorrelation
		case "gap":
			p.Gap = &n.Gap
		case "duplicate":
			p.Duplicate, p.DuplicateCorrelation = &n.Duplicate, &n.DuplicateCorrelation
		case "corrupt":
			p.Corrupt, p.CorruptCorrelation = &n.Corrupt, &n.CorruptCorrelation
		case "rate":
			p.Rate, p.PacketOverhead, p.CellSize, p.CellOverhead = &n.Rate, &n.PacketOverhead, &n.CellSize, &n.CellOverhead
		case "slot":
			p.Slot = &n.Slot
		case "limit":
			p.Limit = &n.Limit
		case "seed":
			p.Seed = &n.Seed
		}
	}
	return p, nil
}

// tcOptions are the words that begin an option of tc's netem, and other names of them.
var tcOptions = map[string]string{
	"delay": "delay", "latency": "delay", "loss": "loss", "drop": "loss", "ecn": "ecn", "reorder": "reorder", "gap": "gap",
	"duplicate": "duplicate", "corrupt": "corrupt", "rate": "rate", "slot": "slot", "limit": "limit", "seed": "seed",
}

// tcNames are the options that a text which qdisc.ParseTC took names. Like tc, it takes
// words that are cut short, to two letters at least.
func tcNames(text string) map[string]bool {
	named := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		for option, name := range tcOptions {
			if len(word) > 1 && strings.HasPrefix(option, word) {
				named[name] = true
			}
		}
	}
	return named
}
