package report

import (
	"time"

	"netemd/internal/experiment"
)

// untimed are events of faults whose time by the samples' clock is not known yet.
type untimed []experiment.Event

// settle gives away those whose time is known, in their order, up to the first that has none; all,
// also the others. unix makes Unix time of the samples' clock.
func (u *untimed) settle(unix time.Duration, all bool, give func(experiment.Event)) {
	for len(*u) > 0 {
		e := (*u)[0].On(unix)
		if e.TimeNS == 0 && !all {
			return
		}
		*u = (*u)[1:]
		give(e)
	}
}
