package cli

import (
	"strings"

	"netemd/qdisc"
)

// parts cuts a comma list into between least and most parts.
func parts(s string, least, most int) ([]string, bool) {
	p := strings.Split(s, ",")
	return p, len(p) >= least && len(p) <= most
}

// parseShape reads the name of a shape; a table of the user's own has a flag of its own.
func parseShape(s string) (qdisc.Distribution, error) {
	d, err := qdisc.ParseDistribution(s)
	if err != nil || d == qdisc.Custom {
		return "", &qdisc.FieldError{Value: s, Want: "uniform, normal, pareto or paretonormal; for a table of your own, --distribution-file FILE"}
	}
	return d, nil
}

// parseSlotTimes reads MIN[,MAX].
func parseSlotTimes(s string) (qdisc.Slot, error) {
	texts, ok := parts(s, 1, 2)
	bad := &qdisc.FieldError{Value: s, Want: "one or two durations, MIN[,MAX], such as 10ms or 10ms,20ms"}
	if !ok {
		return qdisc.Slot{}, bad
	}
	var slot qdisc.Slot
	for i, text := range texts {
		d, err := qdisc.ParseDuration(text)
		if err != nil {
			return qdisc.Slot{}, bad
		}
		if i == 0 {
			slot.MinDelay = d
		}
		slot.MaxDelay = d
	}
	return slot, nil
}

// parseSlotShape reads SHAPE,DELAY,JITTER.
func parseSlotShape(s string) (qdisc.Slot, error) {
	bad := &qdisc.FieldError{Value: s, Want: "a shape and two durations, SHAPE,DELAY,JITTER, such as normal,20ms,5ms"}
	texts, ok := parts(s, 3, 3)
	if !ok {
		return qdisc.Slot{}, bad
	}
	shape, err := parseShape(texts[0])
	if err != nil || shape == qdisc.Uniform {
		return qdisc.Slot{}, bad
	}
	slot := qdisc.Slot{Distribution: shape}
	if slot.Delay, err = qdisc.ParseDuration(texts[1]); err != nil {
		return qdisc.Slot{}, bad
	}
	if slot.Jitter, err = qdisc.ParseDuration(texts[2]); err != nil {
		return qdisc.Slot{}, bad
	}
	return slot, nil
}
