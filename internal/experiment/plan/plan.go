// Package plan is an experiment before it runs: what calls are made, which faults stand when,
// and what must hold of the numbers. It is read from YAML, strictly, and runs nothing.
//
//	experiment: loss-tail
//	version: 1
//	question: what does packet loss look like to the client?
//	lab: pg
//	load: {probe: pg, target: pg, timeout: 5s}
//	phases: {control: 50 calls, fault: 200 calls, recovery: 20 calls}
//	cases:
//	  loss5: {faults: [{target: pg, impairment: {loss: 5%}}]}
//	  loss20: {faults: [{target: pg, impairment: {loss: 20%}}]}
//	kpis:
//	  - {must: "p99_ms > 1s of loss20", reference: "3094 ms"}
//	  - {must: asked == measured}
package plan

import (
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/probe"
)

// Version is that of the form of plans.
const Version = 1

// Limits and defaults of a plan.
const (
	DefaultRepeats = 3
	MaxRepeats     = 100
	MaxCases       = 50
	MaxFaults      = 20
	MaxKPIs        = 100
	MaxExtent      = 24 * time.Hour
	// DefaultLimit is how long one run of a command may take that has no limit of its own.
	DefaultLimit = 10 * time.Minute
)

// Plan is what an experiment does.
type Plan struct {
	Name, Question string
	// Text is the file.
	Text []byte
	// Lab is a built-in one, or the path of a file; the run has a copy of it. Empty: the
	// targets are there already.
	Lab string
	// Repeats of each case's phases after the control run, 1..MaxRepeats.
	Repeats int
	// Seed of all that is drawn; 0: one is drawn and told.
	Seed uint64
	// Policies are the texts of client policies, by name.
	Policies map[string][]byte
	// Command says how a command is run, where phases are one.
	Command Command
	// Cases run one after the other, in this order.
	Cases []Case
	KPIs  []Criterion
	// Quick is what Shortened makes of the plan, and Short that it has.
	Quick Quick
	Short bool
	// Takes is how long a run takes, as its author has measured it; 0: nobody has.
	Takes time.Duration
}

// Case is one row of an experiment.
type Case struct {
	Name string
	// Load is what is called; its Count, Duration and Warmup are those of the phases.
	Load probe.Request
	// Policy is a name in Plan.Policies, or of a built-in one; empty for none.
	Policy string
	// The phases: Control is a run of its own before all repeats. Where Fault has a time, one
	// run goes through warm-up, fault and recovery; where it has a number of calls, fault and
	// recovery are a run each.
	Control, Warmup, Fault, Recovery Extent
	// Faults stand in the phase of that name.
	Faults []Timed
	// Servers are the settings, as YAML, that services of the lab have while the case runs.
	Servers map[string][]byte
}

// Continuous reports whether one run goes through all phases of a repeat.
func (c Case) Continuous() bool { return c.Fault.For > 0 }

// Command is how the user's own command is run; what it is, the command line says.
type Command struct {
	// Node of the lab in which it runs; empty for where netemctl does.
	Node string
	// Limit is the longest that one run may take, 1ms..MaxExtent.
	Limit time.Duration
}

// Commands reports whether the phases of a case are runs of a command.
func (c Case) Commands() bool { return c.Fault.Command }

// Commands reports whether any case has phases that are runs of a command.
func (p Plan) Commands() bool { return slices.ContainsFunc(p.Cases, Case.Commands) }

// Extent is how long a phase is: a number of calls, a time, or one run of a command, beside
// which the load's calls go on, where there is a load; the zero Extent is no phase.
type Extent struct {
	Calls   int
	For     time.Duration
	Command bool
}

// IsZero reports that there is no such phase.
func (e Extent) IsZero() bool { return e == Extent{} }

// Timed is a fault and when it stands.
type Timed struct {
	fault.Spec
	// At is when it begins, from the phase's beginning, and For how long it stands; 0: to the
	// phase's end.
	At, For time.Duration
}

// Criterion is what must hold.
type Criterion struct {
	kpi.KPI
	// Why says what it is about, Reference what others measured, for people.
	Why, Reference string
}

// Case returns the case of that name.
func (p Plan) Case(name string) (Case, bool) {
	for _, c := range p.Cases {
		if c.Name == name {
			return c, true
		}
	}
	return Case{}, false
}

// Counters are the servers' counters that conditions ask for, each once, by the names of their
// services.
func (p Plan) Counters() map[string][]string {
	all := map[string][]string{}
	for _, k := range p.KPIs {
		for _, ref := range k.Refs() {
			service, counter, ok := strings.Cut(ref.Kind, ".")
			if ok && ref.Metric == "server" && !slices.Contains(all[service], counter) {
				all[service] = append(all[service], counter)
			}
		}
	}
	return all
}
