package report

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/kpi"
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
	Reason string `json:"reason,omitempty"`
	// PlanSHA256 is the hash of PlanFile, the plan that was run.
	PlanSHA256 string    `json:"plan_sha256,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	// Ended is zero as long as the run goes on, and of one whose end nobody has written.
	Ended       time.Time               `json:"ended,omitzero"`
	Environment *experiment.Environment `json:"environment,omitempty"`

	Seed    uint64 `json:"seed"`
	Repeats int    `json:"repeats"`
	// Quick says that the run was made shorter than its plan.
	Quick bool `json:"quick,omitempty"`
	// Cases say what was called.
	Cases []Case `json:"cases,omitempty"`
	KPIs  []KPI  `json:"kpis"`
	// Contrasts are each case's calls under the fault beside those without.
	Contrasts []Contrast `json:"contrasts,omitempty"`
	// Runs are those of the user's command, in their order, and Tests what became of each of its
	// tests; both are empty without one.
	Runs  []CommandRun `json:"runs,omitempty"`
	Tests []Test       `json:"tests,omitempty"`
	// Phases are those of all repeats, in the order in which they were observed.
	Phases []Phase `json:"phases,omitempty"`
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

// Words are the measured numbers, or why there are none, in one line.
func (k KPI) Words() string {
	if k.Reason != "" {
		return strings.ReplaceAll(k.Reason, "\n", "; ")
	}
	return numbersText(k.Measured) + k.Across.words()
}

func numbersText(all []Number) string {
	var out []string
	for _, n := range all {
		text := n.Name
		switch {
		case n.Phase != kpi.Fault && n.Case != "":
			text += "(" + n.Case + ", " + n.Phase + ")"
		case n.Case != "":
			text += "(" + n.Case + ")"
		}
		if n.AtLeast {
			text += " at least"
		}
		text += " " + valueText(n)
		if n.Low != nil {
			text = fmt.Sprintf("%s of %d (%.3g..%.3g)", text, n.Of, 100**n.Low, 100**n.High)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// valueText is a number in a few digits, a rate as a percentage.
func valueText(n Number) string {
	if n.Of > 0 {
		return strconv.FormatFloat(100*n.Value, 'g', 4, 64) + "%"
	}
	return strconv.FormatFloat(n.Value, 'g', 4, 64)
}

// Number is a measured number that a condition asked for.
type Number struct {
	Name  string  `json:"name"`
	Case  string  `json:"case,omitempty"`
	Phase string  `json:"phase"`
	Value float64 `json:"value"`
	// AtLeast says that Value is no more than a lower bound.
	AtLeast bool `json:"at_least,omitempty"`
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
			n := Number{Name: f.Metric, Case: f.Case, Phase: f.Phase, Value: f.Number, AtLeast: f.AtLeast, Of: f.Of}
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

// WriteExperiments writes the results of several experiments, whose folders are below dir, as
// one.
func WriteExperiments(dir string, all Experiments) error {
	return errors.Join(
		write(dir, JUnitFile, func(w io.Writer) error { return WriteJUnit(w, all.Experiments) }),
		WriteIndex(dir, all),
		write(dir, ResultFile, func(w io.Writer) error { return WriteJSON(w, "run", all) }),
	)
}

// Hash is that of a plan, in hex.
func Hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// words are what the repeats differ by; nothing where they are one, or alike.
func (a *Across) words() string {
	if a == nil || a.Least == a.Largest {
		return ""
	}
	return fmt.Sprintf(" [repeats: median %.4g, %.4g..%.4g]", a.Median, a.Least, a.Largest)
}

// Words say what the fault did to the latencies of a case, and no more than chance allows.
func (c Contrast) Words() string {
	of := fmt.Sprintf("%s: median %.4g ms of %d good calls under the fault, %.4g ms of %d without it", c.Case, c.FaultMedian, c.Fault, c.ControlMedian, c.Control)
	if !c.Differs {
		return fmt.Sprintf("%s; chance explains the difference (Mann-Whitney, p = %.2g).", of, c.P)
	}
	return fmt.Sprintf("%s; the call under the fault is the slower one in %.1f %% of pairs (Mann-Whitney, p < 0.001).", of, 100*c.Slower)
}
