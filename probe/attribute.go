package probe

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"
)

// Attribution says how samples and the kernel's evidence go together. The zero
// value attributes from what the client's own socket counted.
type Attribution struct {
	// Threshold is the duration above which a call gets a cause; default
	// SlowThreshold.
	Threshold time.Duration
	// Traced says that both ends' kernels were watched for the whole run, so that no
	// event means no retransmission.
	Traced bool
	// ClientCookie and ServerCookie are the network namespaces of the two ends; 0
	// takes any.
	ClientCookie, ServerCookie uint64
	// ClientHop and ServerHop are the neighbours to which the two ends send each other's
	// packets; NeighboursTraced says that both ends' tables were watched, so that no event
	// means no wait for one.
	ClientHop, ServerHop netip.Addr
	NeighboursTraced     bool
	// Held is how long faults on the path hold back what passes, from the beginning on.
	Held  Held
	later []holding // in the order of their times
	// Down are the times in which faults had the server's processes stopped or ended.
	Down []Downtime
	// Hold is how long after its end a sample waits for the events of its connection's
	// closing; default 500 ms. Longest is how long a call can last, and so how long an
	// event waits for the sample that it belongs to; default MaxTimeout. Both are for an
	// Attributor.
	Hold, Longest time.Duration
}

const (
	// firstRetry is the least time that a connect with one lost packet takes: 1 s,
	// both for a SYN (TCP_TIMEOUT_INIT, include/net/tcp.h) and for address
	// resolution (RETRANS_TIME, net/ipv4/arp.c), less a tenth for coarse timers.
	firstRetry = 900 * time.Millisecond
	// backoffSlack: after a retransmission the next one comes after at most twice
	// the wait (RFC 6298, 5.5), and a timer is late now and then.
	backoffSlack = 3
)

// Attribute gives every sample its retransmissions, and every call above the
// threshold, failed ones too, exactly one cause. It changes samples in place, and is an
// Attributor for those who have all samples and events at hand.
func Attribute(samples []Sample, events []Retransmission, a Attribution) {
	a.Hold, a.Longest = math.MaxInt64/4, math.MaxInt64/4
	t := NewAttributor(a)
	t.most = max(t.most, len(events))
	for _, e := range events {
		t.Event(e)
	}
	order := make([]int, len(samples))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(samples[x].EndNS, samples[y].EndNS) })
	for _, i := range order {
		t.Add(samples[i])
	}
	for i, s := range t.Flush(math.MaxInt64) {
		samples[order[i]] = s
	}
}

// cause explains one slow call.
func (a Attribution) cause(s *Sample) Cause {
	var (
		waits       = map[Cause]int64{}
		sum         int64
		last        = s.StartNS
		longest     int64
		established = s.StartNS + s.ConnectNS
		probed      = map[bool]int64{} // by end: what its last event, a TLP, waited
	)
	for _, e := range s.Events {
		if e.TimeNS > s.EndNS {
			break
		}
		if e.TimeNS >= established && e.Cause != SYNRetransmit { // ConnectNS does not say when the handshake began
			last = max(last, established)
		}
		wait := e.TimeNS - last
		longest = max(longest, wait)
		unresolved := s.unresolved(last, e.TimeNS)
		waits[Neighbour] += unresolved
		sum += unresolved
		wait -= unresolved
		waits[e.Cause] += wait
		sum += wait
		if e.Cause == RTO {
			waits[TLP] -= probed[e.Server]
			waits[RTO] += probed[e.Server]
		}
		probed[e.Server] = 0
		if e.Cause == TLP {
			probed[e.Server] = wait
		}
		last = e.TimeNS
	}
	unresolved := s.unresolved(last, s.EndNS)
	if len(waits) == 0 { // no retransmission
		if unresolved > 0 && 2*unresolved >= s.EndNS-s.StartNS {
			return Neighbour
		}
		return a.withoutEvents(s)
	}
	sum += unresolved
	if waits[Neighbour] += unresolved; waits[Neighbour] == 0 {
		delete(waits, Neighbour)
	}
	best := Unknown
	for _, c := range []Cause{Neighbour, RTO, SYNRetransmit, TLP, FastRetransmit} { // a stable order for equal waits
		if w, ok := waits[c]; ok && (best == Unknown || w > waits[best]) {
			best = c
		}
	}
	rest := s.EndNS - max(last, established) - unresolved
	if rest > int64(a.Threshold) && rest > backoffSlack*longest && rest > waits[best] {
		return a.withoutRetransmission(s, time.Duration(sum))
	}
	return best
}

// withoutEvents explains a call of which no kernel reported anything.
func (a Attribution) withoutEvents(s *Sample) Cause {
	connect := time.Duration(s.ConnectNS)
	if s.Info != nil && s.Info.TotalRetransmits > 0 {
		syns := synRetransmits(connect)
		switch {
		case s.ConnectNS == 0 && !s.Reused, syns > 0 && connect > s.Duration()-connect:
			return SYNRetransmit
		case int(s.Info.TotalRTO) > syns:
			return RTO
		case int(s.Info.TotalRetransmits) > syns:
			return a.fromDrops(s) // a TLP or a fast retransmission, and which the socket does not say
		}
	}
	if c := a.fromDrops(s); c != Unknown {
		return c
	}
	if a.Traced && !a.NeighboursTraced && connect >= firstRetry && connect > s.Duration()-connect && a.heldAt(s).Turn == 0 {
		return Neighbour
	}
	return a.withoutRetransmission(s, 0)
}

// withoutRetransmission explains a call, or the part of it that no retransmission accounts
// for, which is all but less.
func (a Attribution) withoutRetransmission(s *Sample, less time.Duration) Cause {
	switch {
	case a.down(s):
		return ServerDown
	case a.queued(s, less):
		return Queueing
	}
	return Unknown
}

// synRetransmits is how many SYNs must have been repeated in a handshake that
// took so long. Retries come after 1, 2, 3, 4 s (tcp_syn_linear_timeouts), or,
// where they double, after 1 and 3 s: then this may say one too many, never one
// few.
func synRetransmits(connect time.Duration) int {
	return int((connect + time.Second - firstRetry) / time.Second)
}
