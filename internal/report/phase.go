package report

import (
	"math"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/probe"
)

// Phase is one phase of one repeat, but for its calls, which are in SamplesFile.
type Phase struct {
	Case  string `json:"case"`
	Phase string `json:"phase"`
	// Repeat counts from 1; 0 is the control run.
	Repeat int `json:"repeat"`
	// BeginNS and EndNS bound it: the calls that were due from the first and before the second
	// are its own. They are by the samples' clock, CLOCK_MONOTONIC; UnixOffsetNS makes Unix time
	// of it.
	BeginNS      int64 `json:"begin_ns"`
	EndNS        int64 `json:"end_ns"`
	UnixOffsetNS int64 `json:"unix_offset_ns"`
	Calls        int   `json:"calls"`
	// Faults are the times in which those of the repeat stood.
	Faults []FaultTime `json:"faults,omitempty"`
	// AskedLoss is the share of packets that its only packet fault was asked to lose, 0..1;
	// null where no single fault says it. Packets is what the packet faults counted.
	AskedLoss *float64             `json:"asked_loss_share,omitempty"`
	Packets   *experiment.Counters `json:"packets,omitempty"`
	// GraceNS is how much later than a fault a retry may begin that it caused.
	GraceNS int64 `json:"grace_ns,omitempty"`
	// Servers is what the lab's servers counted, by SERVICE.COUNTER.
	Servers map[string]int64 `json:"servers,omitempty"`
	// Void says why nothing of it counts; empty otherwise.
	Void string `json:"void,omitempty"`
}

// FaultTime is when a fault stood, by the samples' clock.
type FaultTime struct {
	BeginNS int64 `json:"begin_ns"`
	EndNS   int64 `json:"end_ns"`
}

func phaseOf(o experiment.Observation) Phase {
	p := Phase{
		Case: o.Case, Phase: o.Phase, Repeat: o.Repeat, BeginNS: o.Begin, EndNS: o.End, UnixOffsetNS: int64(o.Unix),
		Calls: len(o.Samples), GraceNS: int64(o.Grace), Servers: o.Servers, Void: o.Void,
	}
	for _, f := range o.Faults {
		p.Faults = append(p.Faults, FaultTime{f.Begin, f.End})
	}
	if !math.IsNaN(o.Asked) {
		p.AskedLoss = &o.Asked
	}
	if o.Counters != nil {
		p.Packets = new(experiment.PacketCounters(*o.Counters))
	}
	return p
}

// Phases are those of a run, in the order of its observations.
func Phases(o experiment.Observations) (all []Phase) {
	for _, x := range o {
		all = append(all, phaseOf(x))
	}
	return all
}

// observation is the phase with calls of its own.
func (p Phase) observation(samples []probe.Sample) experiment.Observation {
	o := experiment.Observation{
		Case: p.Case, Phase: p.Phase, Repeat: p.Repeat, Begin: p.BeginNS, End: p.EndNS, Unix: time.Duration(p.UnixOffsetNS),
		Samples: samples, Asked: math.NaN(), Grace: time.Duration(p.GraceNS), Servers: p.Servers, Void: p.Void,
	}
	for _, f := range p.Faults {
		o.Faults = append(o.Faults, experiment.Span{Begin: f.BeginNS, End: f.EndNS})
	}
	if p.AskedLoss != nil {
		o.Asked = *p.AskedLoss
	}
	if c := p.Packets; c != nil {
		o.Counters = &fault.Counters{
			Seen: c.Seen, Lost: c.Lost, Overflow: c.Overflow, Late: c.Late, Refused: c.Refused, Delayed: c.Delayed,
			Duplicated: c.Duplicated, Reordered: c.Reordered, Corrupted: c.Corrupted, Opened: c.Opened,
		}
	}
	return o
}

// has reports whether a call that was due then, and is in SamplesFile under a label, is of the
// phase.
func (p Phase) has(l place, due int64) bool {
	return l.Case == p.Case && l.Repeat == p.Repeat && (l.Phase == p.Phase || l.Phase == experiment.AllPhases || l.Phase == noPhase) &&
		p.BeginNS <= due && due < p.EndNS
}
