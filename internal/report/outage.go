package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"netemd/probe"
)

// Outages says in one line what the longest of a run's outages took, of the network and of
// the client after it, and in which one the run ended; "" without one.
func Outages(all *probe.Outages) string {
	if all == nil || len(all.List) == 0 {
		return ""
	}
	over := slices.DeleteFunc(slices.Clone(all.List), func(o probe.Outage) bool { return o.Success == nil })
	var parts []string
	if len(over) > 0 {
		o := slices.MaxFunc(over, func(a, b probe.Outage) int { return cmp.Compare(*a.Success, *b.Success) })
		parts = append(parts, outage(o))
		if all.Count > 1 {
			parts = append(parts, fmt.Sprintf("the longest of %d outages", all.Count))
		}
	}
	if o := all.List[len(all.List)-1]; o.Success == nil {
		text := outage(o)
		if len(over) > 0 {
			text = "in the last of them " + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

// outage says what is known of the network only where it is known apart from the calls.
func outage(o probe.Outage) string {
	text := fmt.Sprintf("%s failed", calls(o.Failed))
	if o.Kept > 0 {
		text += fmt.Sprintf(" (%d on a kept connection)", o.Kept)
	}
	switch {
	case o.Success == nil && o.Network == nil:
		return text + ", and none succeeded until the run's end"
	case o.Success == nil:
		return text + fmt.Sprintf("; the network answered %s after the first of them began, and no call succeeded until the run's end", Time(o.Network))
	case *o.Success <= *o.Network:
		return text + fmt.Sprintf("; a call succeeded %s after the first of them began", Time(o.Success))
	}
	later := *o.Success - *o.Network
	return text + fmt.Sprintf("; the network answered %s after the first of them began, and a call succeeded %s later", Time(o.Network), Time(&later))
}
