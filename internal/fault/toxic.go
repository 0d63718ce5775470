package fault

import (
	"time"

	"netemd/qdisc"
)

// ToxicKind names what a toxic does to a connection.
type ToxicKind string

// The toxics, with Toxiproxy's names and one of ours, Down, which refuses
// connections.
const (
	Latency   ToxicKind = "latency"
	Timeout   ToxicKind = "timeout"
	ResetPeer ToxicKind = "reset_peer"
	LimitData ToxicKind = "limit_data"
	Bandwidth ToxicKind = "bandwidth"
	Slicer    ToxicKind = "slicer"
	Down      ToxicKind = "down"
)

// StreamDirection is the side of a proxied connection, with Toxiproxy's words.
type StreamDirection string

// Upstream is client to server, Downstream server to client (the default).
const (
	Upstream   StreamDirection = "upstream"
	Downstream StreamDirection = "downstream"
)

// Toxic is one toxic with typed units; only the fields of its kind are used.
type Toxic struct {
	Kind   ToxicKind
	Stream StreamDirection
	// Toxicity is the share of connections that it touches, drawn once for each
	// connection. 0 means 100 %.
	Toxicity qdisc.Percent
	// Latency and Jitter belong to latency (resolution 1 ms).
	Latency, Jitter time.Duration
	// Timeout belongs to timeout and reset_peer; 0 holds for ever, or resets at once.
	Timeout time.Duration
	// Bytes belongs to limit_data.
	Bytes qdisc.Bytes
	// Rate belongs to bandwidth (resolution 1 KB/s).
	Rate qdisc.Rate
	// AverageSize, SizeVariation and Delay belong to slicer (resolution 1 us).
	AverageSize, SizeVariation qdisc.Bytes
	Delay                      time.Duration
}
