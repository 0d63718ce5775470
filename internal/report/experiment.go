package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"netemd/internal/experiment"
	"netemd/internal/kpi"
	"netemd/probe"
)

// Experiments is what running plans came to.
type Experiments struct {
	Experiments []Experiment `json:"experiments"`
}

// Experiment is one plan's verdict and what it rests on.
type Experiment struct {
	Name     string      `json:"name"`
	Question string      `json:"question,omitempty"`
	Verdict  kpi.Verdict `json:"verdict"`
	// Reason is why the run broke off; empty otherwise.
	Reason  string `json:"reason,omitempty"`
	Seed    uint64 `json:"seed"`
	Repeats int    `json:"repeats"`
	KPIs    []KPI  `json:"kpis"`
	// Contrasts are each case's calls under the fault beside those without.
	Contrasts []Contrast `json:"contrasts,omitempty"`
	// Runs are those of the user's command, in their order, and Tests what became of each of its
	// tests; both are empty without one.
	Runs  []CommandRun `json:"runs,omitempty"`
	Tests []Test       `json:"tests,omitempty"`
}

// KPI is one condition and what it came to.
type KPI struct {
	Condition string      `json:"condition"`
	Case      string      `json:"case,omitempty"`
	Verdict   kpi.Verdict `json:"verdict"`
	Reason    string      `json:"reason,omitempty"`
	Measured  []Number    `json:"measured"`
	Reference string      `json:"reference,omitempty"`
	Why       string      `json:"why,omitempty"`
	// Repeats are the verdicts in each repeat.
	Repeats []kpi.Verdict `json:"repeats"`
	// Across is the first number over the repeats; null of fewer than two.
	Across *Across `json:"across_repeats,omitempty"`
}

// Number is a measured number that a condition asked for.
type Number struct {
	Name  string  `json:"name"`
	Case  string  `json:"case,omitempty"`
	Phase string  `json:"phase"`
	Value float64 `json:"value"`
	// Of is how many cases a rate is of, Low and High its interval at the level 99.9 %.
	Of   int      `json:"of,omitempty"`
	Low  *float64 `json:"low,omitempty"`
	High *float64 `json:"high,omitempty"`
}

// Judged is an experiment's account of what its conditions came to.
func Judged(all []experiment.Judged) []KPI {
	out := []KPI{}
	for _, j := range all {
		k := KPI{
			Condition: j.Text, Case: j.Case, Verdict: j.Verdict, Reason: j.Reason, Reference: j.Reference, Why: j.Why, Measured: []Number{},
		}
		for _, f := range j.Found {
			n := Number{Name: f.Metric, Case: f.Case, Phase: f.Phase, Value: f.Number, Of: f.Of}
			if f.Kind != "" {
				n.Name += "[" + f.Kind + "]"
			}
			if f.Of > 0 {
				low, high := kpi.Interval(f.Value)
				n.Low, n.High = &low, &high
			}
			k.Measured = append(k.Measured, n)
		}
		for _, r := range j.Repeats {
			k.Repeats = append(k.Repeats, r.Verdict)
		}
		if a := j.Across; a != nil {
			k.Across = &Across{Repeats: a.Repeats, Median: a.Median, Least: a.Least, Largest: a.Largest, Level: a.Level}
		}
		out = append(out, k)
	}
	return out
}

// observationLine is one line of an experiment's SamplesFile.
type observationLine struct {
	Case   string `json:"case"`
	Phase  string `json:"phase"`
	Repeat int    `json:"repeat"`
	probe.Sample
}

// WriteExperiment writes an experiment's result and samples to dir, which is made if it is
// missing.
func WriteExperiment(dir string, e Experiment, o experiment.Observations) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	err := write(dir, ResultFile, func(w io.Writer) error { return WriteJSON(w, "run", Experiments{[]Experiment{e}}) })
	return errors.Join(err, write(dir, SamplesFile, func(w io.Writer) error {
		line := json.NewEncoder(w)
		line.SetEscapeHTML(false)
		for _, x := range o {
			for _, s := range x.Samples {
				if err := line.Encode(observationLine{Case: x.Case, Phase: x.Phase, Repeat: x.Repeat, Sample: s}); err != nil {
					return err
				}
			}
		}
		return nil
	}))
}
