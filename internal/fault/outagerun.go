package fault

import (
	"slices"
	"time"
)

// MaxStrikes is how many of the last strikes a fault's record has.
const MaxStrikes = 1000

// OutageRun is what the outages of a fault did so far.
type OutageRun struct {
	// Of is how many there are to be, 0 for no end; Done began, Skipped were left out, and
	// Failed are those of the done after which the service was not back as it should be.
	Of, Done, Skipped, Failed int
	// Down are the services that are down or not ready again now.
	Down []string
	// Next is when the next one is due; zero for none.
	Next time.Time
	// Over says that there is no other one, and that all services are back.
	Over bool
	// Strikes are the last MaxStrikes, oldest first; in an event that one alone which it is
	// about.
	Strikes []StrikeRecord
}

// StrikeRecord is what one outage did.
type StrikeRecord struct {
	Number  int
	Service string
	Action  OutageAction
	// Due is when it was to begin.
	Due time.Time
	// Down is when its processes had their signal, Up when the service was started or let go on
	// again, and Ready when it answered then, as its lab asks; zero for what was not yet.
	Down, Up, Ready Instant
	// PID is the service's first process before, NewPID the one after: the same of a stop.
	PID, NewPID int
	// Skipped says why nothing was done; Error why the service is not back.
	Skipped, Error string
}

// Instant is a moment on two clocks.
type Instant struct {
	Time time.Time
	// Monotonic is CLOCK_MONOTONIC of the agent's machine, in ns, as that of samples.
	Monotonic int64
}

// IsZero reports whether it is none.
func (i Instant) IsZero() bool { return i.Monotonic == 0 }

// Took is from Down to Ready, 0 where one is not known.
func (s StrikeRecord) Took() time.Duration {
	if s.Down.IsZero() || s.Ready.IsZero() {
		return 0
	}
	return time.Duration(s.Ready.Monotonic - s.Down.Monotonic)
}

// Record takes the newest state of a strike into r, and forgets what is too old.
func (r *OutageRun) Record(s StrikeRecord) {
	for i := len(r.Strikes) - 1; i >= 0; i-- {
		if r.Strikes[i].Number == s.Number {
			r.Strikes = slices.Clone(r.Strikes) // who was given them keeps them
			r.Strikes[i] = s
			return
		}
	}
	r.Strikes = append(slices.Clip(r.Strikes), s)
	r.Strikes = r.Strikes[max(0, len(r.Strikes)-MaxStrikes):]
}
