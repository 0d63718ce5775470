// Package schedule is a fault that changes by a timetable: steps, ramps, flapping and repeats
// as a function of the time since it began. It has no clock of its own and knows no engine:
// whoever runs a Schedule asks a Cursor what is in force at a time.
package schedule

import (
	"time"

	"netemd/qdisc"
)

// Bounds of a Schedule. The shortest times are what an agent on a busy machine can keep: it
// makes each change by a call to an engine, which takes from 0.1 ms to some 20 ms.
const (
	// MinSpan is the shortest time between two changes, before Jitter.
	MinSpan = 50 * time.Millisecond
	// MinEvery is the shortest time between two steps of a ramp.
	MinEvery = 100 * time.Millisecond
	// MaxLength is the longest that a Schedule with an end may take: the longest time to live
	// of a fault.
	MaxLength = 24 * time.Hour
	// MaxSteps are the steps that one is made of; MaxRamp the changes of one ramp.
	MaxSteps = 1000
	MaxRamp  = 10_000
	// MaxJitter leaves each time half of what it is at least.
	MaxJitter qdisc.Percent = 50
)

// Forever is the Rounds of a Schedule that goes on until the fault ends.
const Forever = -1

// Schedule is a timetable. The zero value has no steps and is not valid.
type Schedule struct {
	// Name is for people; it may be empty.
	Name string `json:",omitzero"`
	// Steps follow one another. 1..MaxSteps.
	Steps []Step
	// Rounds is how often they are gone through: 0 means once, Forever without end.
	Rounds int `json:",omitzero"`
	// Jitter varies each time between two changes by up to this share of it, either way,
	// drawn uniformly. 0..MaxJitter.
	Jitter qdisc.Percent `json:",omitzero"`
	// Seed is what the Jitter is drawn with; the same one gives the same times.
	Seed uint64 `json:",omitzero"`
}

// Impairment is what is in force at a time; the zero value impairs nothing.
type Impairment struct {
	Packet qdisc.Netem
	// PacketFrom, if not nil, is that of the packets from the target, and Packet that of
	// those to it: where both directions are impaired, and differ.
	PacketFrom *qdisc.Netem `json:",omitzero"`
}

// IsZero reports whether i impairs nothing, in neither direction.
func (i Impairment) IsZero() bool {
	return i.Packet.IsZero() && (i.PacketFrom == nil || i.PacketFrom.IsZero())
}

// Back is the impairment of the packets from the target.
func (i Impairment) Back() qdisc.Netem {
	if i.PacketFrom != nil {
		return *i.PacketFrom
	}
	return i.Packet
}

// Step is a part of a Schedule: an impairment that stands, a ramp, or one that comes and
// goes.
type Step struct {
	// For is how long it takes. At the end of a Schedule of one round 0 means until the fault
	// ends, but not for a ramp.
	For time.Duration
	Impairment
	// Ramp is what Impairment becomes, in equal steps, over For; nil for no ramp.
	Ramp *Ramp `json:",omitzero"`
	// Flap takes Impairment away and puts it back, again and again; nil for no flapping.
	Flap *Flap `json:",omitzero"`
}

// Ramp is the other end of a ramp.
type Ramp struct {
	To Impairment
	// Every is the time between two changes; 0 means a twentieth of Step.For, MinEvery at
	// least. It is cut so that it divides Step.For.
	Every time.Duration
}

// Flap is a time in which an impairment is in force for a share, and then not.
type Flap struct {
	Period time.Duration
	// Duty is the share of Period in which the impairment is in force, at its beginning.
	// Above 0, below 100 %.
	Duty qdisc.Percent
}

// on is how long the impairment is in force in each period.
func (f Flap) on() time.Duration {
	return time.Duration(float64(f.Period) * float64(f.Duty) / 100).Round(time.Millisecond)
}

// changes is how many spans a ramp of that length has.
func (r Ramp) changes(over time.Duration) int {
	every := r.Every
	if every == 0 {
		const parts = 20
		every = max(MinEvery, over/parts)
	}
	return int(max(1, (over+every-1)/every))
}

// rounds is how often the steps are gone through, Forever for ever.
func (s Schedule) rounds() int {
	if s.Rounds == 0 {
		return 1
	}
	return s.Rounds
}

// open reports whether the last step lasts until the fault ends.
func (s Schedule) open() bool { return len(s.Steps) > 0 && s.Steps[len(s.Steps)-1].For == 0 }

// Endless reports whether s has no end of its own.
func (s Schedule) Endless() bool { return s.Rounds == Forever || s.open() }

// nominal is the length of a round before Jitter.
func (s Schedule) nominal() time.Duration {
	var sum time.Duration
	for _, step := range s.Steps {
		sum += step.For
	}
	return sum
}

// Length is how long s takes, with its Jitter; false for one without an end. It expects a
// valid s.
func (s Schedule) Length() (time.Duration, bool) {
	if s.Endless() {
		return 0, false
	}
	if s.Jitter == 0 {
		return s.nominal() * time.Duration(s.rounds()), true
	}
	c := s.Begin()
	for c.Next() {
	}
	return c.Moment().Begin, true
}

// Count is how many moments s has, without the one after its end; false for one without an end.
func (s Schedule) Count() (uint64, bool) {
	var n uint64
	for _, step := range s.Steps {
		spans := step.spans()
		if spans == Forever {
			return 0, false
		}
		n += uint64(spans)
	}
	if s.Rounds == Forever {
		return 0, false
	}
	return n * uint64(s.rounds()), true
}

// Asymmetric reports whether any step is another one in the direction from the target.
func (s Schedule) Asymmetric() bool {
	for _, step := range s.Steps {
		if step.PacketFrom != nil || step.Ramp != nil && step.Ramp.To.PacketFrom != nil {
			return true
		}
	}
	return false
}

// Cover returns one impairment for each direction that sets all that any step sets, of each
// kind as the first step that has it: what cannot stand beside it cannot stand beside s.
func (s Schedule) Cover() (to, from qdisc.Netem) {
	for _, step := range s.Steps {
		all := []Impairment{step.Impairment}
		if step.Ramp != nil {
			all = append(all, step.Ramp.To)
		}
		for _, i := range all {
			to, from = to.Fill(i.Packet), from.Fill(i.Back())
		}
	}
	return to, from
}
