package experiment

import (
	"time"

	"netemd/internal/fault"
)

// The kinds of a Moment.
const (
	// MomentCalls: a run of calls, or of the command, begins.
	MomentCalls = "calls"
	// MomentPhase: a phase begins, or has ended.
	MomentPhase = "phase"
	// MomentFault: a fault is asked for; what becomes of it, the agent tells.
	MomentFault = "fault"
	// MomentServers: a server of the lab is given its settings.
	MomentServers = "servers"
)

// The events of a Moment.
const (
	Began = "began"
	Ended = "ended"
	Asked = "asked"
	Set   = "set"
)

// AllPhases is the phase of a run of calls that goes through several: which call is of which is
// known at its end.
const AllPhases = "all phases"

// Moment is something that a run does, told when it does it.
type Moment struct {
	Time        time.Time
	Kind, Event string
	Case        string
	// Phase may be AllPhases for MomentCalls, and is empty where the kind has none.
	Phase string
	// Repeat counts from 1; 0 is the control run.
	Repeat int
	// Spec is the fault that is asked for; nil of other kinds.
	Spec *fault.Spec
	// Service is the server that is set, Settings what it is given, as YAML.
	Service  string
	Settings []byte
	// Observed is what was measured in the phase that ended; nil of other events. It is not
	// changed any more.
	Observed *Observation
}

// tell tells of a moment that is now.
func (r *Runner) tell(m Moment) {
	if r.Happened == nil {
		return
	}
	m.Time = r.Now()
	r.Happened(m)
}
