package kpi

// Verdict is what a KPI came to.
type Verdict string

// The verdicts. Inconclusive is neither: something that the KPI asks for was not measured.
const (
	Passed       Verdict = "passed"
	Failed       Verdict = "failed"
	Inconclusive Verdict = "inconclusive"
)

// Judgement is a verdict and what it rests on.
type Judgement struct {
	Verdict Verdict
	// Found are the numbers that were asked for and are known.
	Found []Found
	// Reason of an inconclusive one; empty otherwise.
	Reason string
}

// Found is one number that a KPI rests on.
type Found struct {
	Ref
	Value
}

// Judge evaluates the KPI.
func (k KPI) Judge(m Measured) Judgement {
	var j Judgement
	for _, r := range k.refs {
		if v, err := m(r); err == nil && v.Known() {
			j.Found = append(j.Found, Found{r, v})
		}
	}
	holds, err := k.condition.holds(m)
	switch {
	case err != nil:
		j.Verdict, j.Reason = Inconclusive, err.Error()
	case holds:
		j.Verdict = Passed
	default:
		j.Verdict = Failed
	}
	return j
}
