package report

import (
	"cmp"
	"fmt"
	"slices"

	"netemd/probe"
)

// Outages says in one line what the longest of a run's outages took, of the network and of
// the client after it; "" without one.
func Outages(all *probe.Outages) string {
	if all == nil || len(all.List) == 0 {
		return ""
	}
	length := func(o probe.Outage) float64 {
		if o.Success == nil {
			return 1e300 // to the run's end
		}
		return *o.Success
	}
	o := slices.MaxFunc(all.List, func(a, b probe.Outage) int { return cmp.Compare(length(a), length(b)) })
	text := fmt.Sprintf("%s failed", calls(o.Failed))
	if o.Kept > 0 {
		text += fmt.Sprintf(" (%d on a kept connection)", o.Kept)
	}
	switch {
	case o.Network == nil:
		text += "; the network did not answer again"
	case o.Success == nil:
		text += fmt.Sprintf("; the network answered %s after the first of them began, and no call succeeded", Time(o.Network))
	default:
		later := max(0, *o.Success-*o.Network)
		text += fmt.Sprintf("; the network answered %s after the first of them began, and a call succeeded %s later", Time(o.Network), Time(&later))
	}
	if all.Count > 1 {
		text += fmt.Sprintf("; the longest of %d outages", all.Count)
	}
	return text
}
