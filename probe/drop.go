package probe

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Drop is one packet of a call's connection that a fault dropped on purpose, by the
// fault's own record.
type Drop struct {
	// TimeNS is CLOCK_MONOTONIC.
	TimeNS int64 `json:"time_ns"`
	// Source and Destination are the packet's.
	Source      netip.AddrPort `json:"source"`
	Destination netip.AddrPort `json:"destination"`
	// Kind is one of the DropX constants. Bytes is the payload.
	Kind  string `json:"kind"`
	Bytes int    `json:"bytes"`
	// Sequence is TCP's.
	Sequence uint32 `json:"sequence"`
	// Server says that the far end of the call had sent it.
	Server bool `json:"server"`
	// AnsweredNS is when the end that had sent it sent something again, as its kernel
	// reported; 0: it never did.
	AnsweredNS int64 `json:"answered_ns,omitempty"`
	// Shared says that several calls were under way on the connection, and that another one
	// of them has it too and counts it.
	Shared bool `json:"shared,omitempty"`
}

// The kinds of a Drop. An acknowledgement without payload (DropACK) and a reset are
// never sent again; all others of TCP are, while their connection lives.
const (
	DropSYN    = "syn"
	DropSYNACK = "syn_ack"
	DropData   = "data"
	DropACK    = "ack"
	DropFIN    = "fin"
	DropRST    = "rst"
	// DropPacket is one of another protocol than TCP.
	DropPacket = "packet"
)

// repeated reports whether TCP sends it again.
func (d Drop) repeated() bool {
	switch d.Kind {
	case DropSYN, DropSYNACK, DropData, DropFIN:
		return true
	}
	return false
}

// ownSending is how long before the kernel reports a retransmission the very segment may
// have been dropped: the report comes when it has been sent, and on a veth it may have
// been dropped by then. What is sent again because of a drop takes a round trip or a
// timer of 1 ms at least.
const ownSending = 100 * time.Microsecond

// DropKind says what a TCP segment with these flags (RFC 9293, 3.1) is.
func DropKind(flags uint8, payload int) string {
	const fin, syn, rst, ack = 0x01, 0x02, 0x04, 0x10
	switch {
	case flags&(syn|ack) == syn|ack:
		return DropSYNACK
	case flags&syn != 0:
		return DropSYN
	case flags&rst != 0:
		return DropRST
	case payload > 0:
		return DropData
	case flags&fin != 0:
		return DropFIN
	}
	return DropACK
}

// answer says which of a connection's dropped packets its retransmissions answered:
// each answers the oldest one of its end that none has answered yet.
func answer(drops []Drop, events []Retransmission) {
	for _, e := range events {
		for i := range drops {
			d := &drops[i]
			if d.AnsweredNS == 0 && d.repeated() && d.Server == e.Server && e.TimeNS-d.TimeNS >= int64(ownSending) {
				d.AnsweredNS = e.TimeNS
				break
			}
		}
	}
}

// fromDrops is the cause of a slow call of which no kernel reported a retransmission,
// from what the fault itself says that it dropped. A handshake that ended had its lost SYN
// repeated; one that did not end had not, if the kernels would have told.
func (a Attribution) fromDrops(s *Sample) Cause {
	cause := Unknown
	for _, d := range s.Drops {
		switch {
		case d.TimeNS > s.EndNS:
		case d.Kind == DropSYN, d.Kind == DropSYNACK:
			// which is repeated after 1 s and never before
			switch took := time.Duration(s.ConnectNS); {
			case took >= firstRetry && took > s.Duration()-took, took == 0 && !s.Reused && !a.Traced && s.Duration() > time.Second:
				return SYNRetransmit
			case took == 0 && !s.Reused:
				cause = Dropped
			}
		case d.Kind == DropData, d.Kind == DropPacket:
			cause = Dropped
		}
	}
	return cause
}

// DropSummary is what a fault's own record says of the calls' packets.
type DropSummary struct {
	// Recorded counts the packets of the calls' connections that were dropped, in the
	// call's time or in its connection's closing; Kinds counts them by kind.
	Recorded int            `json:"recorded"`
	Kinds    map[string]int `json:"kinds"`
	// Repeatable are those of them, within the time of a call that succeeded, that TCP
	// sends again (all but acknowledgements and resets); Answered are those that it was
	// seen to send again.
	Repeatable int `json:"repeatable"`
	Answered   int `json:"answered"`
	// Causes counts the slow calls that had a dropped packet before they ended, by cause.
	Causes map[Cause]int `json:"slow_calls_with_drops"`
	// Engine counts all packets that the engines dropped during the run, of whatever
	// connection; Missed those of them that could not be recorded.
	Engine uint64 `json:"all_dropped"`
	Missed uint64 `json:"missed"`
}

func (r *Recorder) addDrops(s Sample) {
	each := func(part Sample) (held bool) {
		for _, d := range part.Drops {
			held = held || d.TimeNS <= part.EndNS
			if d.Shared {
				continue
			}
			r.drops.Recorded++
			r.drops.Kinds[d.Kind]++
			if part.Class == OK && d.TimeNS <= part.EndNS && d.repeated() {
				r.drops.Repeatable++
				if d.AnsweredNS != 0 {
					r.drops.Answered++
				}
			}
		}
		return held
	}
	held := each(s)
	for _, a := range s.Attempts {
		held = each(a) || held
	}
	if held && s.Cause != "" {
		r.drops.Causes[s.Cause]++
	}
}

func newDropSummary() DropSummary {
	return DropSummary{Kinds: map[string]int{}, Causes: map[Cause]int{}}
}

func (d *DropSummary) merge(from DropSummary) {
	d.Recorded += from.Recorded
	d.Repeatable += from.Repeatable
	d.Answered += from.Answered
	sum(d.Kinds, from.Kinds)
	sum(d.Causes, from.Causes)
}

// dropped is a Drop that waits for its call.
type dropped struct {
	Drop
	taken bool
}

// Drop takes a dropped packet, in any order, as Event takes an event.
func (t *Attributor) Drop(d Drop) {
	t.makeRoom()
	f := flowOf(d.Source, d.Destination)
	t.waiting = append(t.waiting, arrival{d.TimeNS, f})
	x := t.of(f)
	i := len(x.drops)
	for i > 0 && x.drops[i-1].TimeNS > d.TimeNS {
		i--
	}
	x.drops = slices.Insert(x.drops, i, dropped{Drop: d})
}

// takeDrops gives a call the dropped packets of its connection, by the rules that hold
// for events.
func (t *Attributor) takeDrops(s *Sample, x *evidence) {
	var next int64
	for i := x.dropsFrom(s.StartNS); i < len(x.drops); i++ {
		d := &x.drops[i]
		late := d.TimeNS > s.EndNS
		if late {
			if next == 0 {
				next = x.next(s.StartNS)
			}
			if d.TimeNS >= next || d.TimeNS-s.EndNS > int64(t.a.Hold) {
				break
			}
			if d.taken {
				continue
			}
		}
		mine := d.Drop
		mine.Server = d.Source != s.Local
		mine.Shared = d.taken
		d.taken = true
		s.Drops = append(s.Drops, mine)
	}
	answer(s.Drops, s.Events)
}

func (x *evidence) dropsFrom(timeNS int64) int {
	i, _ := slices.BinarySearchFunc(x.drops, timeNS, func(d dropped, t int64) int { return cmp.Compare(d.TimeNS, t) })
	return i
}

// Drops is what was recorded of dropped packets until now.
func (r *Recorder) Drops() DropSummary {
	d := newDropSummary()
	d.merge(r.drops)
	return d
}
