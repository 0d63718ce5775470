package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"netemd/internal/experiment"
	"netemd/internal/kpi"
	"netemd/probe"
)

// Changed is what differs between two folders.
type Changed struct {
	Experiments []ExperimentChange `json:"experiments"`
	// OnlyBefore and OnlyAfter are those that the other folder does not have.
	OnlyBefore []string `json:"only_before,omitempty"`
	OnlyAfter  []string `json:"only_after,omitempty"`
}

// ExperimentChange is what differs between two runs of an experiment.
type ExperimentChange struct {
	Name   string   `json:"name"`
	Before RunState `json:"before"`
	After  RunState `json:"after"`
	// SamePlan says that both ran the same file.
	SamePlan bool `json:"same_plan"`
	// Notes are what else differs, and what the reader should know of the numbers.
	Notes    []string  `json:"notes,omitempty"`
	Measures []Measure `json:"measures"`
	KPIs     []KPIPair `json:"kpis"`
}

// RunState is a run as a whole.
type RunState struct {
	Verdict    kpi.Verdict `json:"verdict"`
	PlanSHA256 string      `json:"plan_sha256"`
	Seed       uint64      `json:"seed"`
	Repeats    int         `json:"repeats"`
	Quick      bool        `json:"quick,omitempty"`
}

// The numbers that are compared.
const (
	latencyP50 = "p50_ms"
	success    = "success"
	attempts   = "attempts_per_call"
)

// RepeatsLevel is how often repeats that differ by chance alone are taken for two kinds. A few
// of them allow no smaller one; it comes on top of the level of all calls.
const RepeatsLevel = 0.01

// Measure is one number of a phase of a case in both runs.
type Measure struct {
	Case  string `json:"case"`
	Phase string `json:"phase"`
	// What is p50_ms (the median latency of good calls), success (a share) or
	// attempts_per_call (a mean).
	What   string `json:"what"`
	Before Side   `json:"before"`
	After  Side   `json:"after"`
	// P is how often chance alone makes as much of a difference; Larger is the share of pairs of
	// calls in which the later run's number is the larger one, null of success.
	P      float64  `json:"p"`
	Larger *float64 `json:"larger,omitempty"`
	// RepeatsP is the same by the numbers of the repeats, of latencies their logarithms (Student's
	// t test); null where a run has one repeat. From RepeatsLevel on, what repeats differ by explains
	// the difference, whatever P is.
	RepeatsP *float64 `json:"repeats_p"`
	// Changed says that noise does not explain the difference.
	Changed bool `json:"changed"`
}

// Side is the number in one of the runs.
type Side struct {
	Value float64 `json:"value"`
	// Calls are how many it is of, Repeats the number in each repeat.
	Calls   int       `json:"calls"`
	Repeats []float64 `json:"repeats"`
}

// KPIPair is a condition in both runs.
type KPIPair struct {
	Condition   string      `json:"condition"`
	Case        string      `json:"case,omitempty"`
	Before      kpi.Verdict `json:"before"`
	After       kpi.Verdict `json:"after"`
	BeforeWords string      `json:"before_measured"`
	AfterWords  string      `json:"after_measured"`
}

// Name is the condition, and the case that it is of.
func (k KPIPair) Name() string {
	if k.Case == "" {
		return k.Condition
	}
	return k.Condition + " (" + k.Case + ")"
}

// Changes compares the runs of two folders, each experiment with the one of its name; a folder of
// one experiment with one of another name is compared, too.
func Changes(before, after []Run) Changed {
	c := Changed{Experiments: []ExperimentChange{}}
	if len(before) == 1 && len(after) == 1 {
		c.Experiments = append(c.Experiments, change(before[0], after[0]))
		c.decide()
		return c
	}
	for _, b := range before {
		i := slices.IndexFunc(after, func(r Run) bool { return r.Name == b.Name })
		if i < 0 {
			c.OnlyBefore = append(c.OnlyBefore, b.Name)
			continue
		}
		c.Experiments = append(c.Experiments, change(b, after[i]))
	}
	for _, a := range after {
		if !slices.ContainsFunc(before, func(r Run) bool { return r.Name == a.Name }) {
			c.OnlyAfter = append(c.OnlyAfter, a.Name)
		}
	}
	c.decide()
	return c
}

// decide takes all tests of both folders together.
func (c *Changed) decide() {
	var all []*Measure
	var p []float64
	for i := range c.Experiments {
		for j := range c.Experiments[i].Measures {
			m := &c.Experiments[i].Measures[j]
			all, p = append(all, m), append(p, m.P)
		}
	}
	for i, found := range kpi.Holm(p) {
		all[i].Changed = found && !all[i].explained()
	}
	for i := range c.Experiments {
		e := &c.Experiments[i]
		for _, m := range e.Measures {
			if m.Changed && m.Phase == kpi.Control {
				e.Notes = append(e.Notes, fmt.Sprintf("The control run of %s changed, too (%s): what differs under its fault need not be the client's.", m.Case, m.What))
			}
		}
	}
}

func change(before, after Run) ExperimentChange {
	c := ExperimentChange{
		Name: after.Name, Before: state(before), After: state(after), SamePlan: before.PlanSHA256 == after.PlanSHA256,
		Notes: notes(before, after), Measures: []Measure{}, KPIs: []KPIPair{},
	}
	for _, at := range inBoth(before.Observations, after.Observations) {
		b, a := callsOf(before, at), callsOf(after, at)
		if b.void != "" || a.void != "" {
			c.Notes = append(c.Notes, fmt.Sprintf("%s of %s is not compared: %s.", at.Phase, at.Case, cmp.Or(b.void, a.void)))
			continue
		}
		c.Measures = append(c.Measures, b.against(a, at)...)
	}
	for _, k := range before.KPIs {
		for _, l := range after.KPIs {
			if k.Condition == l.Condition && k.Case == l.Case {
				c.KPIs = append(c.KPIs, KPIPair{Condition: k.Condition, Case: k.Case, Before: k.Verdict, After: l.Verdict, BeforeWords: k.Words(), AfterWords: l.Words()})
				break
			}
		}
	}
	return c
}

func state(r Run) RunState {
	return RunState{Verdict: r.Verdict, PlanSHA256: r.PlanSHA256, Seed: r.Seed, Repeats: r.Repeats, Quick: r.Quick}
}

// notes are what else differs.
func notes(before, after Run) (out []string) {
	if before.Name != after.Name {
		out = append(out, fmt.Sprintf("These are two experiments: %s, then %s.", before.Name, after.Name))
	}
	if before.PlanSHA256 != after.PlanSHA256 {
		out = append(out, fmt.Sprintf("The plans are not the same: sha256 %.12s, then %.12s.", before.PlanSHA256, after.PlanSHA256))
	}
	if before.Quick != after.Quick {
		out = append(out, "One of the runs was made shorter than its plan (--quick).")
	}
	if before.Seed != after.Seed {
		out = append(out, fmt.Sprintf("The seeds differ: %d, then %d.", before.Seed, after.Seed))
	}
	for i, r := range []Run{before, after} {
		if r.Reason != "" {
			out = append(out, fmt.Sprintf("The %s run broke off: %s.", []string{"first", "second"}[i], strings.TrimSuffix(r.Reason, ".")))
		}
	}
	if min(before.Repeats, after.Repeats) < 2 {
		out = append(out, "A run has one repeat, so what repeats differ by is not known: a machine that was busier looks like a change.")
	}
	differ := func(what, b, a string) {
		if a != b && a != "" && b != "" {
			out = append(out, fmt.Sprintf("%s: %s, then %s.", what, b, a))
		}
	}
	differ("Kernel", before.Machine.Kernel, after.Machine.Kernel)
	differ("Engines", strings.Join(before.Machine.Engines, ", "), strings.Join(after.Machine.Engines, ", "))
	differ("Processor", before.Machine.CPU, after.Machine.CPU)
	differ("Processors", number(before.Machine.CPUs), number(after.Machine.CPUs))
	differ("netemd", before.Machine.Agent, after.Machine.Agent)
	return out
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// inBoth are the phases that both runs have, of all repeats; the warm-up is no measurement.
func inBoth(before, after experiment.Observations) (all []place) {
	of := func(o experiment.Observation) place { return place{Case: o.Case, Phase: o.Phase} }
	for _, b := range before {
		at := of(b)
		if slices.Contains(all, at) || at.Phase == kpi.Warmup || at.Phase == experiment.AllPhases {
			continue
		}
		if slices.ContainsFunc(after, func(a experiment.Observation) bool { return of(a) == at }) {
			all = append(all, at)
		}
	}
	return all
}

// phaseCalls are the calls of a phase of all repeats, as numbers.
type phaseCalls struct {
	repeats []repeatCalls
	void    string
}

// repeatCalls are those of one repeat: the latencies of the good ones in ms, how many attempts
// each made, and how many succeeded.
type repeatCalls struct {
	latencies, attempts []float64
	ok, all             int
}

func callsOf(r Run, at place) (c phaseCalls) {
	for _, o := range r.Observations {
		if o.Case != at.Case || o.Phase != at.Phase {
			continue
		}
		if o.Void != "" {
			c.void = o.Void
			return c
		}
		one := repeatCalls{all: len(o.Samples)}
		for _, s := range o.Samples {
			if s.Class == probe.OK {
				one.ok++
				if s.Degraded == "" {
					one.latencies = append(one.latencies, milliseconds(s))
				}
			}
			one.attempts = append(one.attempts, float64(len(s.Tries())))
		}
		c.repeats = append(c.repeats, one)
	}
	return c
}

// side is a number of all repeats, and of each.
func (c phaseCalls) side(values func(repeatCalls) []float64, of func([]float64) float64) (s Side, all []float64) {
	s.Repeats = []float64{}
	for _, r := range c.repeats {
		v := values(r)
		all = append(all, v...)
		if len(v) > 0 {
			s.Repeats = append(s.Repeats, of(v))
		}
	}
	if s.Calls = len(all); s.Calls > 0 {
		s.Value = of(all)
	}
	return s, all
}

// against compares the calls of a phase with those of a later run.
func (c phaseCalls) against(later phaseCalls, at place) (out []Measure) {
	ranked := func(what string, values func(repeatCalls) []float64, of func([]float64) float64) {
		m := Measure{Case: at.Case, Phase: at.Phase, What: what}
		var b, a []float64
		m.Before, b = c.side(values, of)
		m.After, a = later.side(values, of)
		r, enough := kpi.MannWhitney(b, a)
		if !enough {
			return
		}
		m.P, m.Larger = r.P, &r.Larger
		m.repeats()
		out = append(out, m)
	}
	ranked(latencyP50, func(r repeatCalls) []float64 { return r.latencies }, func(v []float64) float64 { return kpi.Several(v).Number })
	rate := func(c phaseCalls) (Side, kpi.Value) {
		s := Side{Repeats: []float64{}}
		ok := 0
		for _, r := range c.repeats {
			ok, s.Calls = ok+r.ok, s.Calls+r.all
			if r.all > 0 {
				s.Repeats = append(s.Repeats, float64(r.ok)/float64(r.all))
			}
		}
		v := kpi.Rate(ok, s.Calls)
		if v.Known() {
			s.Value = v.Number
		}
		return s, v
	}
	b, bv := rate(c)
	a, av := rate(later)
	if b.Calls > 0 && a.Calls > 0 {
		m := Measure{Case: at.Case, Phase: at.Phase, What: success, Before: b, After: a, P: kpi.Fisher(bv, av)}
		m.repeats()
		out = append(out, m)
	}
	if c.retries() || later.retries() {
		ranked(attempts, func(r repeatCalls) []float64 { return r.attempts }, mean)
	}
	return out
}

// retries reports whether a call made other than one attempt.
func (c phaseCalls) retries() bool {
	return slices.ContainsFunc(c.repeats, func(r repeatCalls) bool {
		return slices.ContainsFunc(r.attempts, func(n float64) bool { return n != 1 })
	})
}

func mean(v []float64) float64 {
	sum := 0.
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// repeats compares the repeats.
func (m *Measure) repeats() {
	of := func(s Side) (out []float64) {
		for _, v := range s.Repeats {
			if m.What == latencyP50 {
				v = math.Log(v) // they differ by factors
			}
			out = append(out, v)
		}
		return out
	}
	if p, known := kpi.Student(of(m.Before), of(m.After)); known && !math.IsNaN(p) {
		m.RepeatsP = &p
	}
}

// explained reports that what repeats differ by explains the difference.
func (m Measure) explained() bool { return m.RepeatsP != nil && *m.RepeatsP >= RepeatsLevel }

// Text is one of the two numbers.
func (m Measure) Text(s Side) string {
	switch {
	case s.Calls == 0:
		return "-"
	case m.What == latencyP50:
		return Time(&s.Value)
	case m.What == success:
		return Percent(new(100 * s.Value))
	}
	return strconv.FormatFloat(s.Value, 'f', 2, 64)
}

// Words say how far the difference goes, and by what test.
func (m Measure) Words() string {
	p := "p < 0.001"
	if m.P >= 0.001 {
		p = "p = " + strconv.FormatFloat(m.P, 'g', 2, 64)
	}
	if m.Larger == nil {
		return fmt.Sprintf("of %d and %d calls (Fisher, %s)", m.Before.Calls, m.After.Calls, p)
	}
	share, word := *m.Larger, "larger"
	if share < .5 {
		share, word = 1-share, "smaller"
	}
	return fmt.Sprintf("%s in %.1f %% of pairs of %d and %d calls (Mann-Whitney, %s)", word, 100*share, m.Before.Calls, m.After.Calls, p)
}

// Sum says how many of the numbers changed.
func (e ExperimentChange) Sum() string {
	changed, explained := 0, 0
	largest := 0.
	for _, m := range e.Measures {
		switch {
		case m.Changed:
			changed++
		case m.explained() && m.P < 1-kpi.Level:
			explained++
		}
		if m.Before.Value > 0 {
			largest = math.Max(largest, math.Abs(m.After.Value/m.Before.Value-1))
		}
	}
	verdicts := 0
	for _, k := range e.KPIs {
		if k.Before != k.After {
			verdicts++
		}
	}
	s := fmt.Sprintf("%d of %d numbers changed beyond noise, %d of %d verdicts.", changed, len(e.Measures), verdicts, len(e.KPIs))
	if explained > 0 {
		s += fmt.Sprintf(" Of %d more the repeats differ by as much as the runs.", explained)
	}
	if changed == 0 && len(e.Measures) > 0 {
		s += fmt.Sprintf(" What noise explains is %.0f %% at most.", 100*largest)
	}
	return s
}
