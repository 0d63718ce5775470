package probe

import "time"

// Held says how long faults on the path hold back what passes, by what was asked of them,
// for what no kernel can measure: a proxy holds bytes between two connections, and a packet
// that has not come back yet has no round trip. The zero value holds nothing.
type Held struct {
	// Turn is how long a question and its answer are held together, on average; Least is
	// the shortest that they may be.
	Turn, Least time.Duration
	// Byte is how long each byte is held, in seconds, of those that the client sends and of
	// those that it gets: one over a proxy's bandwidth.
	SentByte, ReceivedByte float64
	// Proxy says that it is done by a proxy that the client connects to: the handshake is
	// not held, and no packet's round trip shows it.
	Proxy bool
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
	least, held := a.Held.of(s)
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

// of is how long the faults must have held a call, at least and on average. Of packets,
// that is only told for a handshake that was not answered: all else is measured.
func (h Held) of(s *Sample) (least, mean time.Duration) {
	if h == (Held{}) {
		return 0, 0
	}
	if !h.Proxy {
		if s.ConnectNS == 0 && !s.Reused && s.UDP == nil && s.Class != OK {
			return 0, h.Turn
		}
		return 0, 0
	}
	turns := time.Duration(s.Turns)
	least, mean = turns*h.Least, turns*h.Turn
	if s.Class != OK && (s.ConnectNS != 0 || s.Reused) {
		mean += h.Turn // the answer that did not come
	}
	if s.Info != nil {
		bytes := h.SentByte*float64(s.Info.Sent) + h.ReceivedByte*float64(s.Info.Received)
		mean += time.Duration(bytes * float64(time.Second))
	}
	return least, mean
}
