package report

import (
	"encoding/xml"
	"io"
	"time"

	"netemd/internal/kpi"
)

// The form that CI servers read: that of Ant's junit task, as Jenkins' xunit plugin has its
// schema (junit-10.xsd).
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Time     float64     `xml:"time,attr"`
		Started  string      `xml:"timestamp,attr,omitempty"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitProblem `xml:"failure,omitempty"`
		Error   *junitProblem `xml:"error,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Type    string `xml:"type,attr"`
	}
)

// WriteJUnit writes experiments as test suites, and their conditions as tests: one that does
// not hold is a failure, and one that could not be judged an error.
func WriteJUnit(w io.Writer, all []Experiment) error {
	var out junitSuites
	for _, e := range all {
		s := junitSuite{Name: e.Name, Tests: len(e.KPIs)}
		if !e.Started.IsZero() {
			s.Time, s.Started = e.took().Seconds(), e.Started.UTC().Format(time.DateOnly+"T"+time.TimeOnly)
		}
		for _, k := range e.KPIs {
			c := junitCase{Class: e.Name, Name: k.Condition, Out: k.Words()}
			if k.Case != "" {
				c.Name += " (" + k.Case + ")"
			}
			switch k.Verdict {
			case kpi.Passed:
			case kpi.Failed:
				s.Failures++
				c.Failure = &junitProblem{k.Words(), string(k.Verdict)}
			default:
				s.Errors++
				c.Error = &junitProblem{k.Words(), string(k.Verdict)}
			}
			s.Cases = append(s.Cases, c)
		}
		if e.Reason != "" {
			s.Tests, s.Errors = s.Tests+1, s.Errors+1
			s.Cases = append(s.Cases, junitCase{Class: e.Name, Name: "the run", Error: &junitProblem{e.Reason, "broken off"}})
		}
		out.Suites = append(out.Suites, s)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	x := xml.NewEncoder(w)
	x.Indent("", "  ")
	if err := x.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// took is how long the run was; 0 while it goes on.
func (e Experiment) took() time.Duration {
	if e.Ended.IsZero() {
		return 0
	}
	return e.Ended.Sub(e.Started)
}

// Took is how long the run was, in words; "-" while it goes on.
func (e Experiment) Took() string {
	if e.Ended.IsZero() {
		return "-"
	}
	return e.took().Round(time.Second).String()
}
