package experiment

import "time"

// Standing is the kind of an Event that tells of a fault that was there before.
const Standing = "standing"

// Event is something that happened to a fault while calls were made, on their clock.
type Event struct {
	// TimeNS is CLOCK_MONOTONIC, as in probe.Sample, and Time the same by the wall's clock. Of
	// a Standing fault it is when it was applied, and TimeNS 0 as long as nobody knows what
	// makes one of the other.
	TimeNS int64     `json:"time_ns"`
	Time   time.Time `json:"time"`
	// Event is Standing, or a kind of fault.Event: applied, changed, step, expired, cleared,
	// lost, drifted, repaired, reattached.
	Event string `json:"event"`
	// Fault is its id, Target what it is aimed at, Asked what it does in words.
	Fault  string `json:"fault"`
	Target string `json:"target"`
	Asked  string `json:"asked"`
	State  string `json:"state"`
	Engine string `json:"engine"`
	Owner  string `json:"owner,omitempty"`
	// Reason is why, of a fault that is lost or has drifted.
	Reason string `json:"reason,omitempty"`
}

// Over reports that the fault's time has ended.
func (e Event) Over() bool { return e.Event == "expired" || e.Event == "cleared" }

// On gives an event without a TimeNS the one that offset makes of its Time; offset is what
// makes Unix time of the samples' clock.
func (e Event) On(offset time.Duration) Event {
	if e.TimeNS == 0 && offset != 0 {
		e.TimeNS = e.Time.UnixNano() - int64(offset)
	}
	return e
}
