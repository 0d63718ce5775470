package probe

import (
	"net/netip"
	"time"
)

// Class is what ended a call.
type Class string

// The classes of a call's end. OK is no error.
const (
	OK       Class = "ok"
	Timeout  Class = "timeout"
	Refused  Class = "refused"
	Reset    Class = "reset"
	EOF      Class = "eof"
	Protocol Class = "protocol"
	Server   Class = "server"
	Other    Class = "other"
	// Rejected: the client's own policy made no attempt (breaker open, bulkhead full,
	// no budget left); the network was not asked.
	Rejected Class = "rejected"
	// Cancelled: the client's own policy gave an attempt up, since another one had answered
	// or the call was over; it says nothing about the peer. Only attempts are.
	Cancelled Class = "cancelled"
)

// Failures are the classes of calls that did not end well.
func Failures() []Class {
	return []Class{Timeout, Refused, Reset, EOF, Protocol, Server, Other, Rejected}
}

// Cause is why a call was slow.
type Cause string

// The causes of a slow call, from the kernel's evidence at both ends.
const (
	// RTO: a retransmission timeout of data (200 ms at least by default).
	RTO Cause = "rto"
	// SYNRetransmit: a SYN or SYN-ACK was sent again (1 s at first).
	SYNRetransmit Cause = "syn_retransmit"
	// TLP: a tail loss probe.
	TLP Cause = "tlp"
	// FastRetransmit: a retransmission after duplicate acknowledgements.
	FastRetransmit Cause = "fast_retransmit"
	// Dropped: a fault dropped data of the call, or its SYN, and it is not known how, or
	// whether, that was sent again.
	Dropped Cause = "dropped"
	// Neighbour: packets of the call waited at one of its ends until the next hop's
	// link-layer address (ARP, NDP) was known, or were thrown away since it did not answer.
	// What TCP sent again meanwhile waited for the same.
	Neighbour Cause = "neighbour"
	// Queueing: what the call sent and got was held back on the way, by a delay, a full
	// queue or a proxy's toxic. It is said where no retransmission explains the call, and
	// its packets' own round trips, as its handshake and its socket measured them (see
	// TCPInfo), make up half of its time or more; or where its turns and bytes times what
	// the toxics on a proxy were told to hold do. A server that takes its time is not
	// queueing, but Unknown: no kernel saw what it waited for.
	Queueing Cause = "queueing"
	// ServerDown: no retransmission explains the call, and for half of its time or more a fault
	// of its own had the server's processes stopped or ended.
	ServerDown Cause = "server_down"
	// PolicyWait: the client's own policy waited for longer than the network was waited
	// for: between attempts, or for a place.
	PolicyWait Cause = "policy_wait"
	// Unknown: none of the above was seen.
	Unknown Cause = "unknown"
)

// Causes are all of them.
func Causes() []Cause {
	return []Cause{RTO, SYNRetransmit, TLP, FastRetransmit, Dropped, Neighbour, Queueing, PolicyWait, Unknown}
}

// SlowThreshold is the duration above which a call gets a cause: below the
// 200 ms floor of Linux's retransmission timeout (TCP_RTO_MIN,
// include/net/tcp.h), above what a healthy local call takes.
const SlowThreshold = 150 * time.Millisecond

// Sample is one call. Times are CLOCK_MONOTONIC nanoseconds, the clock of the
// kernel's evidence, so that both can be joined across processes of one host.
type Sample struct {
	// Seq numbers the calls of a run from 0.
	Seq int `json:"seq"`
	// DueNS is when the call should have begun by the schedule of an open loop; 0 in a
	// closed loop, where a call is due when it starts.
	DueNS int64 `json:"due_ns,omitempty"`
	// Warmup marks a call that was due in the warm-up: it is kept, and in no summary.
	Warmup bool `json:"warmup,omitempty"`
	// StartNS is when the call began, EndNS when it ended.
	StartNS int64 `json:"start_ns"`
	EndNS   int64 `json:"end_ns"`
	// Phases are the parts of the call in their order; Turns is how often the client
	// waited for an answer of its peer after the TCP handshake, where the probe can
	// count that.
	Phases []Phase `json:"phases,omitempty"`
	Turns  int     `json:"turns,omitempty"`
	// Bytes is the payload that arrived, for a probe of goodput.
	Bytes int64 `json:"bytes,omitempty"`
	// UDP is what became of a numbered packet, for a probe of packets.
	UDP *Datagram `json:"udp,omitempty"`
	// Reused says that an earlier call had made the connection: there was no handshake in
	// this one, and Info counts what happened during it.
	Reused bool `json:"reused,omitempty"`
	// ConnectNS is how long the TCP handshake took; 0 if it did not end, or was not of
	// this call.
	ConnectNS int64 `json:"connect_ns"`
	// Local and Remote are the connection's ends; zero if no socket was made.
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	// Class is how it ended, Error what the client said of it.
	Class Class  `json:"class"`
	Error string `json:"error,omitempty"`
	// PushbackNS is the least pause before another attempt that the server asked for
	// (Retry-After of HTTP, grpc-retry-pushback-ms of gRPC); NoRetry where it wants none; 0
	// where it said nothing.
	PushbackNS int64 `json:"pushback_ns,omitempty"`
	// Replay says that the answer was that of an earlier request with the same idempotency
	// key (X-Idempotency-Replay: true of HTTP).
	Replay bool `json:"replay,omitempty"`
	// Marked are the parts of the answer that the peer did without, in its own words
	// (X-Degraded of HTTP), such as stock=default; else it is an answer like any other.
	Marked string `json:"marked,omitempty"`
	// Info is the socket's own account, read before it was closed.
	Info *TCPInfo `json:"tcp_info,omitempty"`
	// Made are the settings of the connection, where this call made it. They are told once
	// for all calls, in a Summary's Environment.
	Made *SocketSettings `json:"-"`
	// Cause is set for calls above the threshold; Events are the retransmissions that the
	// kernel reported for this connection, of the call and for a moment after it. With
	// Attempts they are there, and none here.
	Cause  Cause            `json:"cause,omitempty"`
	Events []Retransmission `json:"events,omitempty"`
	// Drops are the packets of this connection that a fault dropped, by the fault's own
	// record, where one is kept; they are where the Events are.
	Drops []Drop `json:"drops,omitempty"`
	// Neighbours are the times of the call in which an end waited for the link-layer address
	// of its next hop; they are where the Events are.
	Neighbours []NeighbourWait `json:"neighbours,omitempty"`
	// Attempts are what a client policy made of the call, in their order, each a sample
	// without attempts of its own; nil without a policy. The call's own connection,
	// phases and TCPInfo are those of the attempt that decided it.
	Attempts []Sample `json:"attempts,omitempty"`
	// Policy is what the policies did during the call, by time.
	Policy []PolicyEvent `json:"policy,omitempty"`
	// Degraded is the answer that a fallback gave in place of the peer's: default or cached.
	// The class is ok then, and the duration is no measure of the peer.
	Degraded string `json:"degraded,omitempty"`
}

// NoRetry is a PushbackNS: the server asks for no other attempt.
const NoRetry = -1

// Duration is the time from the start to the end of the call: its service time.
func (s Sample) Duration() time.Duration { return time.Duration(s.EndNS - s.StartNS) }

// Latency is the time from when the call was due to its end: what a user waited who
// did not wait for the calls before. In a closed loop it is the Duration.
func (s Sample) Latency() time.Duration {
	if s.DueNS == 0 {
		return s.Duration()
	}
	return time.Duration(s.EndNS - s.DueNS)
}

// Datagram is a numbered packet that came back from the echo server. What comes later,
// or twice, is in the run's Datagrams.
type Datagram struct {
	// ThereNS and BackNS are the one-way delays, from stamp to stamp of the two programs;
	// 0 where the two ends do not share a clock.
	ThereNS int64 `json:"there_ns,omitempty"`
	BackNS  int64 `json:"back_ns,omitempty"`
	// HeldNS is how long the server had it, which is in neither.
	HeldNS int64 `json:"held_ns,omitempty"`
	// Arrival numbers the packets in the order in which the server got them, from 1;
	// 0: it did not come back.
	Arrival uint32 `json:"arrival,omitempty"`
	// ReorderedThere: the server had already seen a packet that was sent later (RFC 4737,
	// 3.3); ReorderedBack: the client had already got an answer that the server sent later.
	ReorderedThere bool `json:"reordered_there,omitempty"`
	ReorderedBack  bool `json:"reordered_back,omitempty"`
}

// Datagrams is what became of all numbered packets of a run, warm-up included.
type Datagrams struct {
	// Sent counts the packets, Answered those that were answered in time, Late those
	// whose answer came after their call's budget, Lost the others.
	Sent     int `json:"sent"`
	Answered int `json:"answered"`
	Late     int `json:"late"`
	Lost     int `json:"lost"`
	// LostThere did not reach the server, LostBack did; both are lower bounds that add up
	// to Lost or less, since after the last answer nobody knows which way it was.
	LostThere int `json:"lost_there"`
	LostBack  int `json:"lost_back"`
	// DuplicatesThere are packets that the server got again, DuplicatesBack answers that
	// the client got again.
	DuplicatesThere int `json:"duplicates_there"`
	DuplicatesBack  int `json:"duplicates_back"`
	// ReorderedThere and ReorderedBack count the packets that were overtaken (RFC 4737).
	ReorderedThere int `json:"reordered_there"`
	ReorderedBack  int `json:"reordered_back"`
	// OneClock says that both ends read the same CLOCK_MONOTONIC: one host, and one time
	// namespace. Without it there are no one-way delays.
	OneClock bool `json:"one_clock"`
}

// Phase is one part of a call.
type Phase struct {
	// Name is one of the PhaseX constants.
	Name string `json:"name"`
	// NS is how long it took; a phase that did not end is as long as it lasted.
	NS int64 `json:"ns"`
	// Turns is how often an answer was waited for in it; 0 where nobody counts.
	Turns int `json:"turns,omitempty"`
}

// The phases of calls, in the order in which they can come.
const (
	// PhaseDNS is the look-up of a name, for a Caller that makes one. The probes below this
	// package have none: they call addresses.
	PhaseDNS     = "dns"
	PhaseConnect = "connect"
	PhaseTLS     = "tls"
	PhaseAuth    = "auth"
	// PhaseSettings is HTTP/2's first exchange, which a gRPC client waits for.
	PhaseSettings = "settings"
	// PhasePool is the wait for a connection of a pool.
	PhasePool = "pool"
	// PhaseBegin, PhasePrepare, PhaseQuery and PhaseCommit are a database's.
	PhaseBegin   = "begin"
	PhasePrepare = "prepare"
	PhaseQuery   = "query"
	PhaseCommit  = "commit"
	// PhaseSend, PhaseFirstByte and PhaseBody are a request's: until it is written,
	// until its answer begins, and until that ends.
	PhaseSend      = "send"
	PhaseFirstByte = "first_byte"
	PhaseBody      = "body"
)

// PhaseNames are all of them, in that order.
func PhaseNames() []string {
	return []string{
		PhaseDNS, PhaseConnect, PhaseTLS, PhaseAuth, PhaseSettings, PhasePool, PhaseBegin, PhasePrepare, PhaseQuery, PhaseCommit,
		PhaseSend, PhaseFirstByte, PhaseBody,
	}
}

// unasked reports that the network was not asked for an answer: the policy refused the
// call, whether or not a fallback then had one.
func (s *Sample) unasked() bool {
	return len(s.Attempts) == 0 && (s.Class == Rejected || s.Degraded != "")
}

// Tries are what of the call reached for the network: its attempts; itself, where no policy
// made any; nothing, where its policy refused it before the first.
func (s *Sample) Tries() []Sample {
	if len(s.Attempts) == 0 && !s.unasked() {
		return []Sample{*s}
	}
	return s.Attempts
}

// What a transport does to a call by itself is told as an event, too: PolicyTransport and
// EventReplayed, when it has sent a call again on another connection.
const (
	PolicyTransport = "transport"
	EventReplayed   = "replayed"
)

// PolicyEvent is one thing that a client policy did.
type PolicyEvent struct {
	// TimeNS is CLOCK_MONOTONIC.
	TimeNS int64 `json:"time_ns"`
	// Policy is its name: timeout, retry, breaker, budget, bulkhead, hedge, fallback,
	// cache, deadline.
	Policy string `json:"policy"`
	// Event is what happened: fired, scheduled, exhausted, opened, half_opened, closed,
	// rejected, permitted, used.
	Event string `json:"event"`
	// Attempt is the number of the attempt that it is about, from 1; 0: of the call.
	Attempt int `json:"attempt,omitempty"`
	// DelayNS is the wait that was scheduled.
	DelayNS int64 `json:"delay_ns,omitempty"`
	// Detail is anything else, in words.
	Detail string `json:"detail,omitempty"`
}

// TCPInfo is what TCP_INFO says of the client's socket at the end of a call
// (include/uapi/linux/tcp.h, struct tcp_info).
type TCPInfo struct {
	TotalRetransmits uint32 `json:"total_retransmits"`
	// TotalRTO counts retransmission timeouts; 0 also where the kernel is older
	// than 6.7.
	TotalRTO uint16 `json:"total_rto"`
	Backoff  uint8  `json:"backoff"`
	RTONS    int64  `json:"rto_ns"`
	// RTTNS is the smoothed round trip, of the connection's whole life; MinRTTNS the least
	// one of its last 5 minutes (net.ipv4.tcp_min_rtt_wlen), its handshake's among them.
	RTTNS    int64 `json:"rtt_ns"`
	MinRTTNS int64 `json:"min_rtt_ns,omitempty"`
	// BusyNS is for how long the socket had data under way during the call that the peer had
	// not acknowledged, less the time in which the peer's window was shut; its resolution is
	// the kernel's tick, 1 to 10 ms. 0 where other calls use the connection at the same time.
	BusyNS int64 `json:"busy_ns,omitempty"`
	// Sent counts the bytes that the peer acknowledged, Received those that it sent.
	Sent     uint64 `json:"bytes_sent,omitempty"`
	Received uint64 `json:"bytes_received,omitempty"`
}

// Retransmission is one segment that a kernel sent again.
type Retransmission struct {
	// TimeNS is CLOCK_MONOTONIC.
	TimeNS int64 `json:"time_ns"`
	// Cookie is the network namespace's cookie (SO_NETNS_COOKIE).
	Cookie uint64 `json:"netns_cookie"`
	// Local and Remote are said from the side of the end that retransmitted.
	Local  netip.AddrPort `json:"local"`
	Remote netip.AddrPort `json:"remote"`
	// Cause is RTO, SYNRetransmit, TLP or FastRetransmit.
	Cause Cause `json:"cause"`
	// Server says that the far end of the call sent it.
	Server bool `json:"server"`
	// Shared says that it held up several calls on one connection, and that another one
	// of them has it too and counts it.
	Shared bool `json:"shared,omitempty"`
	// State is the TCP state's number, CAState the congestion state's.
	State   uint8 `json:"state"`
	CAState uint8 `json:"ca_state"`
}
