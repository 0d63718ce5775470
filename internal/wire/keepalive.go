package wire

import "time"

// The keepalive numbers of both ends of the control connection. They stand side by
// side because they must fit: a client that pings more often than the server
// allows is cut off with "too_many_pings" (google.golang.org/grpc/keepalive).
const (
	// ClientPing is how long a connection is silent before the client pings, and
	// ClientPingTimeout how long it waits for the answer: a dead agent is noticed
	// after their sum.
	ClientPing        = 10 * time.Second
	ClientPingTimeout = 5 * time.Second
	// ServerMinPing is the shortest interval between pings that the server allows.
	ServerMinPing = 5 * time.Second
)

// How a client comes back after its connection broke: it tries again after
// ReconnectFirst, and then after ever longer times up to ReconnectMost. gRPC's own,
// 120 s, would outlive most outages.
const (
	ReconnectFirst = 100 * time.Millisecond
	ReconnectMost  = time.Second
)

// HoldGrace is how long a held fault stands at most after the TCP connection of its
// holder broke, or less where its time to live is shorter. Over a unix socket there is
// none: what ends that connection ended the holder.
const HoldGrace = 10 * time.Second

// MaxRequest is the largest message that the agent accepts, in bytes.
const MaxRequest = 1 << 20

// How much of a call, and of a connection, may be on its way without an answer of the
// reader, in bytes. Where they are said, gRPC does not measure them with pings of its own,
// which would be a third of what is written and read for a call.
const (
	StreamWindow = 256 << 10
	ConnWindow   = 1 << 20
)
