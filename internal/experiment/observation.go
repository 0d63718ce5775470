package experiment

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"netemd/internal/fault"
	"netemd/probe"
)

// Span is a time of the samples' clock, without its End.
type Span struct{ Begin, End int64 }

// Observation is what was measured in one phase of one repeat of a case.
type Observation struct {
	Case  string
	Phase string
	// Repeat counts from 1; 0 is the control run, which all repeats share.
	Repeat int
	// Begin and End bound the phase, by the samples' clock.
	Begin, End int64
	// Unix is what makes Unix time of that clock.
	Unix time.Duration
	// Samples are the calls that were due in it.
	Samples []probe.Sample
	// Command is the run of the command; nil where the phase is none.
	Command *CommandRun
	// Counters are those of the packet faults that stood in it; nil where none did.
	Counters *fault.Counters
	// Asked is the loss that was asked for, 0..1; NaN where no single fault says it.
	Asked float64
	// Faults are the times in which those of the repeat stood, by the samples' clock; Grace is
	// how much later a retry may begin that one of them caused: one timeout and the longest pause.
	Faults []Span
	Grace  time.Duration
	// Outages are what faults of processes did.
	Outages []fault.StrikeRecord
	// Servers is what the lab's servers counted in the phase, by SERVICE.COUNTER.
	Servers map[string]int64
	// Unsettled says why that is not all that its calls made them do; empty otherwise.
	Unsettled string
	// Void says why nothing of it counts: a fault that was lost, a run that broke off. Empty
	// otherwise.
	Void string
}

// Observations are all of a run.
type Observations []Observation

func (o Observation) name() string {
	if o.Repeat == 0 {
		return o.Case + ", " + o.Phase
	}
	return fmt.Sprintf("%s, repeat %d, %s", o.Case, o.Repeat, o.Phase)
}

// part is what was due after and within times from its beginning, 0 for no bound.
func (o Observation) part(after, within time.Duration) Observation {
	begin := o.Begin + int64(after)
	if within > 0 {
		o.End = min(o.End, o.Begin+int64(within))
	}
	o.Begin = begin
	o.Samples = slices.DeleteFunc(slices.Clone(o.Samples), func(s probe.Sample) bool {
		due := dueNS(s)
		return due < o.Begin || due >= o.End
	})
	return o
}

// dueNS is when a call was due; in a closed loop, when it began.
func dueNS(s probe.Sample) int64 { return cmp.Or(s.DueNS, s.StartNS) }
