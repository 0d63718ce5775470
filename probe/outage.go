package probe

import "time"

// Outage is a time in which calls failed, from the first that did to the next success. It
// tells apart what the network took to heal, and what the client took after that to notice:
// a pool may hand out connections that died meanwhile.
type Outage struct {
	// StartNS is when the first call that failed began, on the clock of samples.
	StartNS int64 `json:"start_ns"`
	// Failed counts the calls that failed, Kept those of them that were on a connection of
	// an earlier call: each such connection costs one call, if its client lets go of it.
	Failed int `json:"failed_calls"`
	Kept   int `json:"failed_on_kept_connections"`
	// Network is when the target answered a TCP connection again, be it by a refusal, in ms
	// from StartNS; null if it never did. Where calls go through kept connections, straight to
	// the target, it is asked by connections of one SYN each, 50 ms apart, from the first
	// failure's end on; so a network that was well all the time answers then. A call that
	// succeeds is an answer in any case.
	Network *float64 `json:"network_answered_ms"`
	// Success is when a call that began after StartNS succeeded, in ms from there; null if
	// none did.
	Success *float64 `json:"first_success_ms"`
}

// Outages finds them in calls as they end. The zero value has seen none; it is not safe
// for concurrent use.
type Outages struct {
	// List are the outages in their order, at most the first 100; Count is how many there
	// were.
	List  []Outage `json:"list"`
	Count int      `json:"count"`

	open bool
	now  Outage
}

const mostOutages = 100

// Ended takes a call that has ended, and reports whether an outage began with it: then the
// network is to be asked until Answered or Over.
func (o *Outages) Ended(s Sample) (began bool) {
	switch s.Class {
	case OK:
		if s.Degraded == "" && o.open && s.StartNS >= o.now.StartNS {
			o.Answered(s.EndNS)
			o.now.Success = o.since(s.EndNS)
			o.close()
		}
	case Timeout, Refused, Reset, EOF, Other:
		if began = !o.open; began {
			o.open, o.now = true, Outage{StartNS: s.StartNS}
		}
		o.now.Failed++
		if s.Reused {
			o.now.Kept++
		}
	}
	return began
}

// Answered says that the network has answered at a time, if it had not before.
func (o *Outages) Answered(timeNS int64) {
	if o.open && o.now.Network == nil {
		o.now.Network = o.since(timeNS)
	}
}

// Over reports whether nothing is to be asked any more.
func (o *Outages) Over() bool { return !o.open || o.now.Network != nil }

// Finish ends an outage that the run's end found.
func (o *Outages) Finish() {
	if o.open {
		o.close()
	}
}

func (o *Outages) since(timeNS int64) *float64 {
	v := milliseconds(time.Duration(max(0, timeNS-o.now.StartNS)))
	return &v
}

func (o *Outages) close() {
	if o.Count++; len(o.List) < mostOutages {
		o.List = append(o.List, o.now)
	}
	o.open = false
}
