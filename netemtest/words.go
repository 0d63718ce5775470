package netemtest

import (
	"cmp"
	"fmt"
	"strings"

	"netemd/internal/fault"
)

// words is a fault in one line: "loss 20% to pg".
func words(s fault.Spec) string {
	var what []string
	switch {
	case s.Packet != nil:
		what = append(what, s.Packet.String())
	case s.Content != nil:
		what = append(what, s.Content.String())
	}
	for _, t := range s.Toxics {
		what = append(what, "toxic "+string(t.Kind))
	}
	if s.Outage != nil {
		return s.Outage.String() + ": " + s.TargetName()
	}
	if s.Request != nil {
		what = append(what, s.Request.String())
	}
	direction := s.Direction
	switch {
	case !s.OnPackets():
		direction = "at"
	case direction == "":
		direction = To
	case direction == Both:
		direction = "to and from"
	}
	return strings.Join(what, ", ") + " " + string(direction) + " " + s.TargetName()
}

// placement is where it sits.
func placement(f fault.Fault) string { return strings.Join(f.Placement, " and ") }

// happened is what an event says.
func happened(e fault.Event, words string) string {
	text := "is " + e.Kind
	switch e.Kind {
	case "changed", "cleared", "expired", "repaired":
		text = "was " + e.Kind
	}
	if why := cmp.Or(e.Fault.Reason, words); why != "" {
		text += ": " + why
	}
	return text
}

// String says the counters that are not 0.
func (s Stats) String() string {
	var b strings.Builder
	unit := "packets"
	if s.requests {
		unit = "requests"
	}
	fmt.Fprintf(&b, "%d %s seen", s.Seen, unit)
	for _, c := range []struct {
		n    uint64
		name string
	}{
		{s.Lost, "lost"}, {s.Overflow, "lost by a full queue"}, {s.Late, "too late"}, {s.Refused, "refused by the device"},
		{s.Delayed, "delayed"}, {s.Duplicated, "duplicated"}, {s.Reordered, "reordered"}, {s.Corrupted, "corrupted"},
		{s.Errors, "answered with an error"}, {s.Aborted, "reset"},
		{s.Opened, "passed unimpaired"}, {s.Chosen, "chosen"},
	} {
		if c.n > 0 {
			fmt.Fprintf(&b, ", %d %s", c.n, c.name)
		}
	}
	return b.String()
}
