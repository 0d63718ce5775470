package fault

import (
	"fmt"
	"time"

	"netemd/qdisc"
)

// ToxicKind names what a toxic does to a connection.
type ToxicKind string

// The toxics, with Toxiproxy's names and one of ours, Down.
const (
	// Latency delays what passes, by Latency plus or minus a uniform Jitter. The
	// order of the bytes is kept. The TCP handshake is not delayed: the proxy makes
	// it.
	Latency ToxicKind = "latency"
	// Timeout lets nothing pass and closes the connection once no data has come for
	// Timeout.
	Timeout ToxicKind = "timeout"
	// ResetPeer resets the connection, Timeout after the first data on its side.
	// Connections that the Toxicity spares are not reset early, but end with a reset
	// instead of an orderly close.
	ResetPeer ToxicKind = "reset_peer"
	// LimitData closes the connection when Bytes have passed.
	LimitData ToxicKind = "limit_data"
	// Bandwidth lets Rate pass.
	Bandwidth ToxicKind = "bandwidth"
	// Slicer cuts the data into pieces of AverageSize plus or minus SizeVariation,
	// with Delay after each.
	Slicer ToxicKind = "slicer"
	// SlowClose passes the end of the connection on after Delay.
	SlowClose ToxicKind = "slow_close"
	// Down refuses new connections and cuts the open ones.
	Down ToxicKind = "down"
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
	// connection and toxic. 0.0001..100 %, resolution 0.0001 %; 0 means 100 %.
	Toxicity qdisc.Percent
	// Seed has the n-th connection from the fault's beginning touched or spared each time,
	// in our own proxy; 0 draws anew. It belongs to a Toxicity below 100 %.
	Seed uint64
	// Latency and Jitter belong to latency: 1 ms..24 h, and at most Latency;
	// resolution 1 ms.
	Latency, Jitter time.Duration
	// Timeout belongs to timeout and reset_peer: up to 24 h, resolution 1 ms; 0 holds
	// for ever, or resets at once.
	Timeout time.Duration
	// Bytes belongs to limit_data; 1 B or more.
	Bytes qdisc.Bytes
	// Rate belongs to bandwidth: 1 KB/s..100 GB/s, resolution 1 KB/s of 1000 bytes.
	Rate qdisc.Rate
	// AverageSize, SizeVariation and Delay belong to slicer: 1 B..1 GiB, less than
	// AverageSize, and up to 24 h with a resolution of 1 us. Delay belongs to slow_close,
	// too: 1 ms..24 h, resolution 1 ms.
	AverageSize, SizeVariation qdisc.Bytes
	Delay                      time.Duration
}

// Draws reports whether t touches some connections and spares others.
func (t Toxic) Draws() bool { return t.Toxicity > 0 && t.Toxicity < 100 }

// ToxicWarnings are what a user should know about toxics. open says that connections which are
// open meet them too, as through a proxy of somebody else's.
func ToxicWarnings(toxics []Toxic, open bool) []string {
	var w []string
	for _, t := range toxics {
		if t.Draws() {
			w = append(w, fmt.Sprintf("toxicity %v of %s is of connections (unit = connection): all calls on one are touched, or none", t.Toxicity, t.Kind))
		}
		if t.Seed != 0 && (t.Jitter > 0 || t.SizeVariation > 0) {
			w = append(w, fmt.Sprintf("the seed is of which connections %s touches: what varies on them is drawn anew each time", t.Kind))
		}
		if open && t.Kind == ResetPeer {
			w = append(w, "connections that are open now are closed, not reset: Toxiproxy resets those alone that begin with a reset_peer")
		}
	}
	return w
}
