package probe

import (
	"slices"
	"time"
)

// Held says how long faults on the path hold back what passes, by what was asked of them,
// for what no kernel can measure: a proxy holds bytes between two connections, and a packet
// that has not come back yet has no round trip. The zero value holds nothing.
type Held struct {
	// Turn is how long a question and its answer are held together, on average; Least is
	// the shortest that they may be. Of packets, that counts for a handshake without an answer
	// alone: all else their own round trips show.
	Turn, Least time.Duration
	// Byte is how long each byte is held, in seconds, of those that the client sends and of
	// those that it gets: one over a rate.
	SentByte, ReceivedByte float64
	// Proxy says that it is done by a proxy that the client connects to: the handshake is
	// not held, and no packet's round trip shows it.
	Proxy bool
}

// holding is what is held back from a time on.
type holding struct {
	fromNS int64
	held   Held
}

// keptHoldings bounds those that are kept for calls that have not ended.
const keptHoldings = 1000

// HeldFrom says that faults on the path hold back so much from a time on, on the clock of
// samples, until another one is said. The times are in order.
func (t *Attributor) HeldFrom(timeNS int64, h Held) {
	last := t.a.Held
	if n := len(t.a.later); n > 0 {
		last = t.a.later[n-1].held
	}
	if h == last {
		return
	}
	if len(t.a.later) == keptHoldings {
		t.a.Held = t.a.later[0].held
		t.a.later = slices.Delete(t.a.later, 0, 1)
	}
	t.a.later = append(t.a.later, holding{timeNS, h})
}

// heldAt is what was held back in the middle of a call.
func (a Attribution) heldAt(s *Sample) Held {
	h, middle := a.Held, s.StartNS+(s.EndNS-s.StartNS)/2
	for _, later := range a.later {
		if later.fromNS <= middle {
			h = later.held
		}
	}
	return h
}

const (
	// delayedACK is the most that a peer's kernel waits on a fast path before it
	// acknowledges what its program has not answered (TCP_DELACK_MIN, 40 ms,
	// include/net/tcp.h), and two ticks of a clock of 250 Hz: so much of each turn may be
	// the server's time, though it looks like the path's.
	delayedACK = 48 * time.Millisecond
	// longTrip is the smoothed round trip below which much time with data under way means
	// much data, and not a long way.
	longTrip = 10 * time.Millisecond
)

// queued reports whether a call was slow by queueing: its packets, or what a proxy held of
// them, were on their way for at least half of it. less is what retransmissions account
// for, which is not the way's.
func (a Attribution) queued(s *Sample, less time.Duration) bool {
	took := s.Duration()
	if 2*(onTheWay(s)-less) >= took {
		return true
	}
	least, held := a.heldAt(s).of(s)
	return held > 0 && least <= took && 2*min(held, took) >= took
}

// onTheWay is for how long a call waited for its packets' own round trips, as far as that
// is certain: the handshake, which kernels answer at once, and for each turn the
// connection's least round trip, or, where that is more, the time in which the socket had
// data under way (tcpi_busy_time) less what acknowledgements may have waited for the
// server's program. A server that takes its time has little of either, since its kernel
// acknowledges a question long before it is answered.
func onTheWay(s *Sample) time.Duration {
	if s.UDP != nil && s.Class == OK {
		if s.UDP.ThereNS != 0 {
			return time.Duration(s.UDP.ThereNS + s.UDP.BackNS)
		}
		return s.Duration() - time.Duration(s.UDP.HeldNS)
	}
	if s.Info == nil {
		return 0
	}
	connect := time.Duration(s.ConnectNS)
	if len(s.Events) == 0 && s.Info.TotalRetransmits > 0 {
		connect = 0 // a SYN of it may have been lost
	}
	turns := time.Duration(s.Turns)
	trips := turns * time.Duration(s.Info.MinRTTNS)
	if s.Class != OK {
		turns++ // the one that got no answer
	}
	if s.Info.RTTNS >= int64(longTrip) {
		trips = max(trips, time.Duration(s.Info.BusyNS)-max(turns, 1)*delayedACK)
	}
	return min(connect+trips, s.Duration())
}

// of is how long the faults must have held a call, at least and on average.
func (h Held) of(s *Sample) (least, mean time.Duration) {
	if h == (Held{}) {
		return 0, 0
	}
	switch turns := time.Duration(s.Turns); {
	case h.Proxy:
		least, mean = turns*h.Least, turns*h.Turn
		if s.Class != OK && (s.ConnectNS != 0 || s.Reused) {
			mean += h.Turn // the answer that did not come
		}
	case s.ConnectNS == 0 && !s.Reused && s.UDP == nil && s.Class != OK:
		mean = h.Turn
	}
	if s.Info != nil {
		bytes := h.SentByte*float64(s.Info.Sent) + h.ReceivedByte*float64(s.Info.Received)
		mean += time.Duration(bytes * float64(time.Second))
	}
	return least, mean
}
