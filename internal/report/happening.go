package report

import (
	"strings"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/probe"
)

// Happening is one line of the EventsFile of an experiment: something that the run, a fault or
// a client policy did. Lines are in the order in which they became known; UnixNS orders them.
type Happening struct {
	// UnixNS is when, in ns of Unix time; TimeNS is the same by the samples' clock, where it is
	// known.
	UnixNS int64 `json:"unix_ns"`
	TimeNS int64 `json:"time_ns,omitempty"`
	// Kind is run, calls, phase, fault, servers or policy; Event is what happened: began, ended,
	// asked, set, those of experiment.Event, or of probe.PolicyEvent.
	Kind  string `json:"kind"`
	Event string `json:"event"`
	// Case, Phase and Repeat are when in the plan that was; empty where it is not known.
	Case   string `json:"case,omitempty"`
	Phase  string `json:"phase,omitempty"`
	Repeat int    `json:"repeat,omitempty"`
	// BeginUnixNS is when the phase that ended here had begun, Calls how many were due in it, and
	// Void why nothing of it counts.
	BeginUnixNS int64  `json:"begin_unix_ns,omitempty"`
	Calls       int    `json:"calls,omitempty"`
	Void        string `json:"void,omitempty"`
	// Fault is an id, Asked what it does in words.
	Fault  string `json:"fault,omitempty"`
	Target string `json:"target,omitempty"`
	Asked  string `json:"asked,omitempty"`
	State  string `json:"state,omitempty"`
	Engine string `json:"engine,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Reason string `json:"reason,omitempty"`
	// Service is a server of the lab, and Settings are what it was given, as YAML.
	Service  string `json:"service,omitempty"`
	Settings string `json:"settings,omitempty"`
	// Policy is the part of the client's policy, Seq the call's number, Attempt the attempt's,
	// from 1, and DelayNS a wait.
	Policy  string `json:"policy,omitempty"`
	Seq     *int   `json:"seq,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	DelayNS int64  `json:"delay_ns,omitempty"`
	Detail  string `json:"detail,omitempty"`
}

// happened is a moment of the run; words says a fault.
func happened(m experiment.Moment, words func(fault.Spec) string) Happening {
	h := Happening{
		UnixNS: m.Time.UnixNano(), Kind: m.Kind, Event: m.Event, Case: m.Case, Phase: m.Phase, Repeat: m.Repeat,
		Service: m.Service, Settings: strings.TrimSpace(string(m.Settings)),
	}
	if s := m.Spec; s != nil {
		h.Target, h.Engine, h.Asked = s.Target, string(s.Engine), words(*s)
	}
	if o := m.Observed; o != nil {
		h.Calls, h.Void = len(o.Samples), o.Void
		if o.End > o.Begin {
			h.TimeNS = o.End
			h.UnixNS, h.BeginUnixNS = o.End+int64(o.Unix), o.Begin+int64(o.Unix)
		}
	}
	return h
}

// ofFault is an event of a fault.
func ofFault(e experiment.Event) Happening {
	return Happening{
		UnixNS: e.Time.UnixNano(), TimeNS: e.TimeNS, Kind: experiment.MomentFault, Event: e.Event,
		Fault: e.Fault, Target: e.Target, Asked: e.Asked, State: e.State, Engine: e.Engine, Owner: e.Owner, Reason: e.Reason,
	}
}

// fault is the event that ofFault made a line of; false of other lines.
func (h Happening) fault() (experiment.Event, bool) {
	return experiment.Event{
		TimeNS: h.TimeNS, Time: time.Unix(0, h.UnixNS), Event: h.Event,
		Fault: h.Fault, Target: h.Target, Asked: h.Asked, State: h.State, Engine: h.Engine, Owner: h.Owner, Reason: h.Reason,
	}, h.Kind == experiment.MomentFault && h.Fault != ""
}

// telling are the events of policies that are in EventsFile: what a policy refused, ran out of,
// or changed to. What it does for each single call is in SamplesFile.
var telling = map[string]bool{"opened": true, "half_opened": true, "closed": true, "rejected": true, "exhausted": true, "used": true}

// ofPolicy are those of a call and its attempts.
func ofPolicy(at place, s probe.Sample, unix time.Duration) (all []Happening) {
	add := func(events []probe.PolicyEvent) {
		for _, e := range events {
			if telling[e.Event] {
				all = append(all, Happening{
					UnixNS: e.TimeNS + int64(unix), TimeNS: e.TimeNS, Kind: "policy", Event: e.Event, Case: at.Case, Phase: at.Phase, Repeat: at.Repeat,
					Policy: e.Policy, Seq: &s.Seq, Attempt: e.Attempt, DelayNS: e.DelayNS, Detail: e.Detail,
				})
			}
		}
	}
	add(s.Policy)
	for _, a := range s.Attempts {
		add(a.Policy)
	}
	return all
}
