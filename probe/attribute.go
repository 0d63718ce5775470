package probe

import (
	"cmp"
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
	// PathDelayed says that every packet of the path is delayed on purpose, so that
	// a call without a retransmission is slow by queueing.
	PathDelayed bool
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
// threshold, failed ones too, exactly one cause. It changes samples in place.
//
// An event belongs to the call whose two ends it names, the last one that started
// before it; the kernel of either end may have sent it, and Server says which. All
// of them are kept in Events, ordered by time, those after the call's end too.
//
// The cause is the one whose retransmissions ended the most waiting. An event ends
// the wait since the call's previous event, or since the handshake's end, or since
// the call's start, whichever is latest, so that the waits never overlap. A TLP that
// an RTO of the same end follows ended nothing, since it was lost as well (had it
// arrived, the next loss would begin with another TLP): the RTO ended both waits.
// Time after the last event that its timer cannot account for (more than the
// threshold, and than three times the longest wait) counts against them as a wait of
// its own.
//
// That wait, and a slow call without an event, are explained by the socket's own
// counts (see Sample.Info: SYN retransmissions from the connect's duration, RTO
// from TotalRTO; a TLP cannot be told there), else as Neighbour when the
// handshake took 0.9 s or more although both ends were watched and no SYN was
// repeated, else as Queueing if PathDelayed says so, else Unknown.
func Attribute(samples []Sample, events []Retransmission, a Attribution) {
	if a.Threshold == 0 {
		a.Threshold = SlowThreshold
	}
	a.join(samples, events)
	for i := range samples {
		s := &samples[i]
		s.Cause = ""
		if s.Duration() > a.Threshold {
			s.Cause = a.cause(s)
		}
	}
}

type flow struct{ local, remote netip.AddrPort }

// join hands the events to their samples.
func (a Attribution) join(samples []Sample, events []Retransmission) {
	byFlow := make(map[flow][]*Sample, len(samples))
	for i := range samples {
		s := &samples[i]
		s.Events = nil
		if f := (flow{s.Local, s.Remote}); f.local.IsValid() && f.remote.IsValid() {
			byFlow[f] = append(byFlow[f], s)
		}
	}
	for _, list := range byFlow { // a port may be used again within a run
		slices.SortFunc(list, func(x, y *Sample) int { return cmp.Compare(x.StartNS, y.StartNS) })
	}
	for _, e := range events {
		list, cookie := byFlow[flow{e.Local, e.Remote}], a.ClientCookie
		if list == nil {
			list, cookie = byFlow[flow{e.Remote, e.Local}], a.ServerCookie
			e.Server = true
		} else {
			e.Server = false
		}
		if cookie != 0 && e.Cookie != cookie {
			continue
		}
		n, _ := slices.BinarySearchFunc(list, e.TimeNS, func(s *Sample, t int64) int { return cmp.Compare(s.StartNS, t+1) })
		if n > 0 {
			list[n-1].Events = append(list[n-1].Events, e)
		}
	}
	for i := range samples {
		slices.SortFunc(samples[i].Events, func(x, y Retransmission) int { return cmp.Compare(x.TimeNS, y.TimeNS) })
	}
}

// cause explains one slow call.
func (a Attribution) cause(s *Sample) Cause {
	var (
		waits       = map[Cause]int64{}
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
		waits[e.Cause] += wait
		if e.Cause == RTO {
			waits[TLP] -= probed[e.Server]
			waits[RTO] += probed[e.Server]
		}
		probed[e.Server] = 0
		if e.Cause == TLP {
			probed[e.Server] = wait
		}
		longest = max(longest, wait)
		last = e.TimeNS
	}
	if len(waits) == 0 {
		return a.withoutEvents(s)
	}
	best := Unknown
	for _, c := range []Cause{RTO, SYNRetransmit, TLP, FastRetransmit} { // a stable order for equal waits
		if w, ok := waits[c]; ok && (best == Unknown || w > waits[best]) {
			best = c
		}
	}
	rest := s.EndNS - max(last, established)
	if rest > int64(a.Threshold) && rest > backoffSlack*longest && rest > waits[best] {
		return a.withoutRetransmission()
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
			return Unknown // a TLP or a fast retransmission, and which the socket does not say
		}
	}
	if a.Traced && connect >= firstRetry && connect > s.Duration()-connect && !a.PathDelayed {
		return Neighbour
	}
	return a.withoutRetransmission()
}

func (a Attribution) withoutRetransmission() Cause {
	if a.PathDelayed {
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
