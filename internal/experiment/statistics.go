package experiment

import (
	"math"
	"slices"
	"time"

	"netemd/internal/kpi"
	"netemd/probe"
)

// Across is one number over the repeats, each of which has its own.
type Across struct {
	// Repeats are the numbers of those that have one.
	Repeats                []float64
	Median, Least, Largest float64
	// Level is how sure it is that the true median lies from Least to Largest, whatever the
	// distribution: 1 - 2^(1-n) of n independent repeats.
	Level float64
}

// across takes the numbers of the repeats together; nil of fewer than two.
func across(values []float64) *Across {
	if len(values) < 2 {
		return nil
	}
	v := kpi.Several(values)
	return &Across{
		Repeats: values, Median: v.Number, Least: v.Values[0], Largest: v.Values[len(values)-1],
		Level: 1 - math.Pow(2, 1-float64(len(values))),
	}
}

// Contrast is a case's calls under the fault beside those without it: latencies of the good
// ones, in ms, of all repeats.
type Contrast struct {
	Case                       string
	Control, Fault             int
	ControlMedian, FaultMedian float64
	kpi.Ranks
}

// Contrasts are those of the cases that have both phases, nothing of which is void, and enough
// good calls in each.
func Contrasts(o Observations) (all []Contrast) {
	var names []string
	for _, x := range o {
		if !slices.Contains(names, x.Case) {
			names = append(names, x.Case)
		}
	}
	for _, name := range names {
		control, known := o.latencies(name, kpi.Control)
		fault, both := o.latencies(name, kpi.Fault)
		r, enough := kpi.MannWhitney(control, fault)
		if !known || !both || !enough {
			continue
		}
		all = append(all, Contrast{
			Case: name, Control: len(control), Fault: len(fault),
			ControlMedian: kpi.Several(control).Number, FaultMedian: kpi.Several(fault).Number, Ranks: r,
		})
	}
	return all
}

// latencies are those of the good calls of a case's phase; false where something of it is void.
func (o Observations) latencies(name, phase string) (all []float64, known bool) {
	for _, x := range o {
		if x.Case != name || x.Phase != phase {
			continue
		}
		if x.Void != "" {
			return nil, false
		}
		for _, s := range x.Samples {
			if s.Class == probe.OK && s.Degraded == "" {
				all = append(all, float64(s.Latency())/float64(time.Millisecond))
			}
		}
	}
	return all, true
}
