package fault

import "time"

// Step is where a fault is in its schedule.
type Step struct {
	// Number counts the changes from 1; Of is how many there are, 0 where there is no end.
	Number, Of uint64
	// Step is the one of the schedule's steps, and Round the how manieth time they are gone
	// through, from 1.
	Step, Round int
	// Began is when it began by the timetable, and Next when the next one does; zero for
	// none.
	Began time.Time
	Next  time.Time `json:",omitzero"`
	// Over says that the schedule has ended: nothing is impaired any more.
	Over bool `json:",omitzero"`
	// Late is how much later than Began it came into force, and MaxLate the most of all.
	Late, MaxLate time.Duration
	// Skipped are the changes that were never made, since the agent stood still.
	Skipped uint64
}
