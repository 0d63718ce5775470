package experiment

import (
	"cmp"
	"errors"
	"slices"

	"netemd/internal/fault"
	"netemd/internal/kpi"
)

// outages are how many services failed, or the most of them at one time.
func (o Observations) outages(r kpi.Ref) (kpi.Value, error) {
	if r.After > 0 || r.Within > 0 {
		return kpi.Value{}, errors.New("outages are known of whole phases")
	}
	count, most := 0, 0
	for _, x := range o {
		for _, s := range x.Outages {
			if s.Skipped == "" {
				count++
			}
		}
		most = max(most, atOnce(x.Outages))
	}
	if r.Metric == "outages" {
		return number(count)
	}
	return number(most)
}

// atOnce is the most services that were down at one time.
func atOnce(all []fault.StrikeRecord) (most int) {
	type edge struct {
		at   int64
		step int
	}
	var edges []edge
	for _, s := range all {
		if s.Down.IsZero() {
			continue
		}
		edges = append(edges, edge{s.Down.Monotonic, 1})
		if !s.Ready.IsZero() {
			edges = append(edges, edge{s.Ready.Monotonic, -1})
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), a.step-b.step) })
	down := 0
	for _, e := range edges {
		down += e.step
		most = max(most, down)
	}
	return most
}
