package probe

import (
	"cmp"
	"net/netip"
	"slices"
)

// NeighbourEvent is what a kernel said of an entry of its neighbour tables (ARP, NDP).
type NeighbourEvent struct {
	// TimeNS is CLOCK_MONOTONIC.
	TimeNS int64
	// Cookie is the network namespace's cookie.
	Cookie uint64
	// Address is the neighbour's.
	Address netip.Addr
	// Waiting says that packets to it wait for its link-layer address, Failed that it was
	// asked for in vain.
	Waiting, Failed bool
}

// NeighbourWait is a time in which packets of an end waited for the link-layer address of
// the neighbour on their way.
type NeighbourWait struct {
	// FromNS and UntilNS are CLOCK_MONOTONIC; UntilNS is 0 where it had not ended.
	FromNS  int64 `json:"from_ns"`
	UntilNS int64 `json:"until_ns,omitempty"`
	// Address is the neighbour's.
	Address netip.Addr `json:"address"`
	// Server says that it was the far end of the call that waited.
	Server bool `json:"server"`
	// Failed says that no answer came, and the packets were thrown away.
	Failed bool `json:"failed,omitempty"`
}

// heldWaits bounds the waits that are kept for calls that have not ended.
const heldWaits = 10_000

// Neighbour takes what happened to a neighbour, in the order of the times. Only the two
// ends' own hops count (see Attribution).
func (t *Attributor) Neighbour(e NeighbourEvent) {
	client := e.Cookie == t.a.ClientCookie && e.Address == t.a.ClientHop
	server := e.Cookie == t.a.ServerCookie && e.Address == t.a.ServerHop
	if !client && !server {
		return
	}
	i := len(t.hops) - 1
	for i >= 0 && (t.hops[i].Server == client || t.hops[i].UntilNS != 0) { // that end's open wait
		i--
	}
	switch {
	case e.Waiting && i < 0:
		if len(t.hops) == heldWaits {
			t.hops = slices.Delete(t.hops, 0, 1)
		}
		t.hops = append(t.hops, NeighbourWait{FromNS: e.TimeNS, Address: e.Address, Server: !client})
	case !e.Waiting && i >= 0:
		t.hops[i].UntilNS, t.hops[i].Failed = e.TimeNS, e.Failed
	}
}

// forgetHops drops the waits that ended before a time.
func (t *Attributor) forgetHops(before int64) {
	t.hops = slices.DeleteFunc(t.hops, func(w NeighbourWait) bool { return w.UntilNS != 0 && w.UntilNS < before })
}

// takeHops gives a call the waits of its time.
func (t *Attributor) takeHops(s *Sample) {
	for _, w := range t.hops {
		if w.FromNS < s.EndNS && w.within(s.StartNS, s.EndNS) > 0 {
			s.Neighbours = append(s.Neighbours, w)
		}
	}
}

// within is how much of a time the wait took, which ends with the next packet or with the
// call: what was thrown away when the wait failed is missed until then.
func (w NeighbourWait) within(from, until int64) int64 {
	end := w.UntilNS
	if end == 0 || w.Failed && end > from {
		end = until
	}
	return max(0, min(end, until)-max(w.FromNS, from))
}

// unresolved is how much of a part of the call's time either end waited for its neighbour.
func (s *Sample) unresolved(from, until int64) (sum int64) {
	if len(s.Neighbours) == 0 {
		return 0
	}
	waits := slices.SortedFunc(slices.Values(s.Neighbours), func(a, b NeighbourWait) int { return cmp.Compare(a.FromNS, b.FromNS) })
	for _, w := range waits {
		n := w.within(from, until)
		sum += n
		if n > 0 { // what comes later counts from its end
			from = max(from, w.FromNS) + n
		}
	}
	return sum
}
