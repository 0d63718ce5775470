package cli

import (
	"fmt"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// queued are the packets that a packet fault holds, and for one that has ended held at
// its end; nil for what the engine cannot tell.
func queued(f fault.Fault) *uint64 { return viewStats(f).Queued }

// leavesWithin is how long after its end the packets of a hold that has ended leave at the
// latest, 0 if there are none.
func leavesWithin(f fault.Fault) time.Duration {
	ended := f.State == fault.Cleared || f.State == fault.Expired
	if !ended || f.Spec.Content == nil || f.Queued == 0 {
		return 0
	}
	return f.Spec.Content.Hold
}

// queuedUntil is when they leave at the latest, by the time now, right after its end; nil if
// there are none.
func queuedUntil(f fault.Fault, now time.Time) *time.Time {
	within := leavesWithin(f)
	if within == 0 {
		return nil
	}
	return new(now.Add(within))
}

// queuedText says what of a hold that has just ended leaves still, behind what is said
// of it; empty for nothing.
func queuedText(f fault.Fault) string {
	within := leavesWithin(f)
	switch {
	case within == 0:
		return ""
	case f.Queued == 1:
		return "; 1 held packet leaves within " + qdisc.FormatDuration(within)
	}
	return fmt.Sprintf("; %d held packets leave within %s", f.Queued, qdisc.FormatDuration(within))
}
