package audit

import (
	"encoding/json"
	"time"
)

// Agent is the actor of what no peer asked for: a fault's end by time, or what a start or
// a cleanup removed.
const Agent = "netemd"

// Record is one line of the log. Values of peers are JSON strings, in which neither a
// newline nor a NUL stands as itself.
type Record struct {
	// Time is the wall clock at the end of what is recorded, and Monotonic CLOCK_MONOTONIC
	// of the machine in ns, which no setting of the clock bends. Write fills both in.
	Time      time.Time `json:"time"`
	Monotonic int64     `json:"monotonic_ns"`
	// Actor says who did it, as a fault's owner does, or Agent.
	Actor string `json:"actor"`
	// Peer is who called; nil where nobody did.
	Peer *Peer `json:"peer,omitempty"`
	// Method is the call in gRPC's terms, and Verb what it does in those of the rules; release
	// is the end of a hold by its holder, connect a connection that was refused, and Refused
	// counts what was refused beside what is told. Of what nobody asked for, Verb is expired,
	// lost, drifted, repaired, reattached, removed, kept (handed over by a stop), restored, or missed:
	// events that no record tells, since more came than could be written.
	Method string `json:"method,omitempty"`
	Verb   string `json:"verb"`
	Target string `json:"target,omitempty"`
	// Faults are the ids of those that it was about.
	Faults []string `json:"faults,omitempty"`
	// Request is a summary of what was asked for, MaxRequest bytes at most.
	Request string `json:"request,omitempty"`
	// Code is the result as gRPC names it: "OK", "PermissionDenied"; Error its words.
	Code  string `json:"code"`
	Error string `json:"error,omitempty"`
	// Duration is how long it took, in ns.
	Duration time.Duration `json:"duration_ns"`
	// Count is of Refused: how many there were, the first at First and the last at Last.
	Count int       `json:"count,omitempty"`
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
}

// Peer is who called: over the unix socket, or with a certificate.
type Peer struct {
	// UID, GID, PID and Groups are of the process that connected. PID is 0 where it cannot
	// be seen from here.
	UID    *uint32  `json:"uid,omitempty"`
	GID    *uint32  `json:"gid,omitempty"`
	PID    int32    `json:"pid,omitempty"`
	Groups []uint32 `json:"groups,omitempty"`
	// Certificate is what the client's says that it is, and Address where it came from.
	Certificate []string `json:"certificate,omitempty"`
	Address     string   `json:"address,omitempty"`
}

// MaxRequest and maxError bound what peers can write into one line, in bytes.
const (
	MaxRequest = 4096
	maxError   = 4096
)

// line is the record as one line with its end.
func (r Record) line() ([]byte, error) {
	r.Request, r.Error = cut(r.Request, MaxRequest), cut(r.Error, maxError)
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	const mark = "..."
	return s[:most-len(mark)] + mark
}
