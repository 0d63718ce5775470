package experiment

import (
	"slices"

	"netemd/internal/experiment/plan"
	"netemd/internal/kpi"
)

// Judged is one condition of a plan and what it came to, in one case where it names none.
type Judged struct {
	plan.Criterion
	// Case is the one that it was judged of; empty where the condition names its own.
	Case string
	// Judgement is of all repeats together or, of a condition that must hold in every one, of
	// the worst.
	kpi.Judgement
	// Repeats are the same condition's judgements in each repeat.
	Repeats []kpi.Judgement
	// Across is the first number of the condition over the repeats; nil of fewer than two.
	Across *Across
}

// Judge has every condition of a plan judged by what was measured.
func Judge(p plan.Plan, o Observations) (all []Judged) {
	measured := newNumbers(o)
	measured.short = p.Short
	for _, c := range p.KPIs {
		for _, name := range casesOf(p, c) {
			j := Judged{Criterion: c, Case: name}
			for repeat := 1; repeat <= p.Repeats; repeat++ {
				j.Repeats = append(j.Repeats, c.Judge(in(name, measured.in(repeat))))
			}
			j.Across = across(firsts(c, j.Repeats))
			j.Judgement = c.Judge(in(name, measured.in(together)))
			if c.Every {
				j.Judgement = slices.MaxFunc(j.Repeats, func(a, b kpi.Judgement) int { return rankOf(a.Verdict) - rankOf(b.Verdict) })
			}
			all = append(all, j)
		}
	}
	return all
}

// firsts are a condition's first number in each repeat that has it; none of one of the control
// run, which all repeats share.
func firsts(c plan.Criterion, all []kpi.Judgement) (values []float64) {
	if len(c.Refs()) == 0 || c.Refs()[0].Phase == kpi.Control {
		return nil
	}
	for _, j := range all {
		for _, f := range j.Found {
			if f.Ref == c.Refs()[0] {
				values = append(values, f.Number)
			}
		}
	}
	return values
}

// casesOf are the cases that a condition is judged of: each, where a number names none.
func casesOf(p plan.Plan, c plan.Criterion) []string {
	if !slices.ContainsFunc(c.Refs(), func(r kpi.Ref) bool { return r.Case == "" }) {
		return []string{""}
	}
	var names []string
	for _, x := range p.Cases {
		names = append(names, x.Name)
	}
	return names
}

// in is the same numbers of a case, where none is named.
func in(name string, m kpi.Measured) kpi.Measured {
	return func(r kpi.Ref) (kpi.Value, error) {
		if r.Case == "" {
			r.Case = name
		}
		return m(r)
	}
}

// rankOf orders verdicts from good to bad: what failed is not made doubtful by what was not
// measured beside it.
func rankOf(v kpi.Verdict) int {
	return slices.Index([]kpi.Verdict{kpi.Passed, kpi.Inconclusive, kpi.Failed}, v)
}

// Verdict is the worst of all; inconclusive where nothing was judged.
func Verdict(all []Judged) kpi.Verdict {
	if len(all) == 0 {
		return kpi.Inconclusive
	}
	return slices.MaxFunc(all, func(a, b Judged) int { return rankOf(a.Verdict) - rankOf(b.Verdict) }).Verdict
}
