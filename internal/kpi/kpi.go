package kpi

import (
	"fmt"
	"strings"
	"time"

	"netemd/qdisc"
)

// The phases of an experiment.
const (
	Control  = "control"
	Warmup   = "warmup"
	Fault    = "fault"
	Recovery = "recovery"
)

// Phases are in the order in which they pass.
var Phases = []string{Control, Warmup, Fault, Recovery}

// MaxText bounds the text of a KPI, in bytes.
const MaxText = 1000

// KPI is a condition that holds or does not. It is made by Parse.
type KPI struct {
	// Text as it was written.
	Text string
	// Phase is where metrics are taken that name none: one of Phases; default Fault.
	Phase string
	// Case is the one whose metrics are meant that name none; empty: the only one, or each.
	Case string
	// After and Within bound the metrics to what was due in a part of the phase, both counted
	// from its beginning; 0: no bound.
	After, Within time.Duration
	// Every says that the condition must hold in each repeat.
	Every bool

	condition node
	refs      []Ref
}

// Ref is one number that a KPI asks for.
type Ref struct {
	Metric string
	// Kind is what stands in brackets: a class, a cause, a width of bins; empty for none.
	Kind string
	// Case is empty where the KPI has none.
	Case          string
	Phase         string
	After, Within time.Duration
}

// String is the reference as it can be written.
func (r Ref) String() string {
	s := r.Metric
	if r.Kind != "" {
		s += "[" + r.Kind + "]"
	}
	if r.Case != "" {
		s += "(" + r.Case + ")"
	}
	return s
}

// Refs are the numbers that the KPI asks for, each once, in the order of the text.
func (k KPI) Refs() []Ref { return append([]Ref(nil), k.refs...) }

// Parse reads a KPI, in the form that the package's documentation says. The error is a
// *qdisc.FieldError of field "kpi" that names the column.
func Parse(text string) (KPI, error) {
	wrong := func(column int, why string) (KPI, error) {
		return KPI{}, &qdisc.FieldError{Field: "kpi", Value: text, Why: fmt.Sprintf("column %d: %s", column, why)}
	}
	switch {
	case strings.TrimSpace(text) == "":
		return KPI{}, &qdisc.FieldError{Field: "kpi", Value: text, Want: "a condition, such as 'p99_ms < 500 in fault'"}
	case len(text) > MaxText:
		return KPI{}, &qdisc.FieldError{Field: "kpi", Want: fmt.Sprintf("at most %d bytes, not %d", MaxText, len(text))}
	case strings.ContainsAny(text, "\n\r\x00"):
		return KPI{}, &qdisc.FieldError{Field: "kpi", Value: text, Want: "one line"}
	}
	k := KPI{Text: text, Phase: Fault}
	expr, at, why := k.clauses(text)
	if why != "" {
		return wrong(at, why)
	}
	r := reader{kpi: &k}
	if at, why := r.read(expr); why != "" {
		return wrong(at, why)
	}
	return k, nil
}
