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
