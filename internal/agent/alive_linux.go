package agent

import (
	"context"
	"fmt"
	"time"

	"netemd/internal/fault"
)

// overdueTime is by how much a fault may outlast its end before the agent is no longer taken
// for alive: by then its clearing hangs, or has failed some seven times.
const overdueTime = 2 * time.Minute

// Alive returns nil as long as the faults could be looked at in time and all that are over
// have ended: what a watchdog asks for.
//
// A lane that hangs is no reason by itself. The other faults go on and end, a look at one
// behind it gives up after 1 s, and to be killed would take the faults and labs of everybody.
// But when a fault outlasts its end behind it, a new process has to clean up: no other way is
// left to keep what was promised.
func (a *Agent) Alive(ctx context.Context) error {
	looked := make(chan []fault.Fault, 1)
	go func() { looked <- a.leases.List(ctx) }()
	select {
	case faults := <-looked:
		return overdue(faults, time.Now())
	case <-ctx.Done():
		return fmt.Errorf("the faults could not be looked at: %w", context.Cause(ctx))
	}
}

// overdue says which fault should have ended long ago; nil for none.
func overdue(faults []fault.Fault, now time.Time) error {
	for _, f := range faults {
		if late := now.Sub(f.Expires); late > overdueTime {
			return fmt.Errorf("fault %s of %s to %s should have ended %v ago", f.ID, f.Spec.Owner, f.Spec.TargetName(), late.Round(time.Second))
		}
	}
	return nil
}
