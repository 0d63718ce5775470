package content

import (
	"cmp"
	"fmt"
	"time"

	"netemd/qdisc"
)

// Kind is what a rule chooses packets by.
type Kind string

// The kinds. Those of TCP choose nothing of other protocols.
const (
	// SYN and SYNACK are the first and the second packet of a TCP handshake, FIN and RST
	// what ends a connection. SYN does not choose SYNACKs.
	SYN    Kind = "syn"
	SYNACK Kind = "synack"
	FIN    Kind = "fin"
	RST    Kind = "rst"
	// Data is the N-th segment of a TCP connection that carries data, in one direction,
	// and every retransmission of it. Segments are counted by sequence number, so that
	// a retransmission is not counted again.
	Data Kind = "data"
	// Retransmit is a TCP segment that carries data, a SYN or a FIN which was seen before
	// at the same place: what was lost on the way there comes for the first time.
	Retransmit Kind = "retransmit"
	// Every is each N-th packet of any protocol.
	Every Kind = "every"
	// Match is what Expr says.
	Match Kind = "match"
)

// Limits of a rule.
const (
	MaxN     = 1 << 31
	MaxCount = 1 << 31
	MaxHold  = time.Minute
	MaxExpr  = 1024 // bytes
)

// Rule chooses packets among those of a flow, and says what becomes of them.
type Rule struct {
	Kind Kind
	// N belongs to Data, from 1, and to Every, from 1 for all packets.
	N uint32
	// Expr belongs to Match: see Parse.
	Expr string
	// Count is how many packets are acted on until the rule rests; 0 is no end.
	Count uint32
	// PerConnection has Count for each connection by itself, and Every count so.
	PerConnection bool
	// Hold is how long the packets are held, at most MaxHold; 0 drops them.
	Hold time.Duration
}

// Key is the same for equal rules only.
func (r Rule) Key() string {
	return fmt.Sprintf("%s %d %q %d %t %d", r.Kind, r.N, r.Expr, r.Count, r.PerConnection, r.Hold)
}

// Flags are the bits of a TCP header's flags that each packet of the kind has, and those
// that none has; 0 and 0 where the kind does not say.
func (r Rule) Flags() (set, unset uint8) {
	switch r.Kind {
	case SYN:
		return TCPSYN.Flag(), TCPACK.Flag()
	case SYNACK:
		return TCPSYN.Flag() | TCPACK.Flag(), 0
	case FIN:
		return TCPFIN.Flag(), 0
	case RST:
		return TCPRST.Flag(), 0
	}
	return 0, 0
}

// Action is "drop" or "hold".
func (r Rule) Action() string {
	if r.Hold > 0 {
		return "hold"
	}
	return "drop"
}

// What says the kind as it is typed: "syn", "data:3", "every:100", "match 'tcp.len > 100'".
func (r Rule) What() string {
	switch r.Kind {
	case Data, Every:
		return fmt.Sprintf("%s:%d", r.Kind, r.N)
	case Match:
		return fmt.Sprintf("match '%s'", r.Expr)
	}
	return string(r.Kind)
}

// String says the rule in one line: "drop syn, 1 packet of each connection".
func (r Rule) String() string {
	s := r.Action() + " " + r.What()
	if r.Hold > 0 {
		s += " for " + qdisc.FormatDuration(r.Hold)
	}
	if r.Count > 0 {
		s += fmt.Sprintf(", %d packet%s", r.Count, map[bool]string{true: "s"}[r.Count > 1])
		if r.PerConnection {
			s += " of each connection"
		}
	}
	return s
}

// Record is one packet that was chosen.
type Record struct {
	// Time is CLOCK_MONOTONIC in ns; Wall the same moment on the wall clock.
	Time int64
	Wall time.Time
	// Source and Destination are "10.77.0.1:40000", "[fd00::1]:40000", or bare addresses
	// for protocols without ports.
	Source, Destination string
	// Protocol is the IP protocol number.
	Protocol uint8
	// Flags, Sequence and Payload belong to TCP: the flags as in the header, the sequence
	// number as in the header, and the bytes of data. Payload belongs to UDP, too.
	Flags    uint8
	Sequence uint32
	Payload  uint32
	// Segment is the number of the data segment for which the packet was chosen, Rule.N, also
	// where it came in a packet with others; 0 if the rule does not count any.
	Segment uint32
	// Length is that of the IP packet, Segments how many wire packets it stands for: more
	// than 1 is a super-packet that segmentation offload was to cut.
	Length, Segments uint32
}

// Compare orders records by time.
func (r Record) Compare(o Record) int { return cmp.Compare(r.Time, o.Time) }

// Log is what a rule did.
type Log struct {
	// Records are the last of them, at most MaxRecords, oldest first.
	Records []Record
	// Chosen counts all, Missed those that could not be recorded.
	Chosen, Missed uint64
	// Skipped are those behind a Cursor that were recorded and are no longer kept.
	Skipped uint64
	// Forgotten is how many connections were forgotten at least, of more than
	// MaxConnections: they count anew.
	Forgotten uint64
}

const (
	// MaxRecords is how many records are kept for each fault and place.
	MaxRecords = 10_000
	// MaxConnections is how many connections a rule remembers at each place.
	MaxConnections = 16_384
)

// Cursor is how far a log was read. The zero Cursor is before its beginning.
type Cursor struct {
	// Log tells logs apart, one of which may follow another for the same rule and place.
	Log uint64
	// Read counts the records, the skipped ones too.
	Read uint64
}
