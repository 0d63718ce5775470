package probe

import (
	"errors"
	"fmt"
	"time"
)

// ErrRequest is what errors.Is finds in every RequestError.
var ErrRequest = errors.New("invalid probe request")

// RequestError is one field of a Request that was refused.
type RequestError struct {
	// Field is the field's name as a user knows it: "count".
	Field string
	// Value is what was given, as text.
	Value string
	// Want is the allowed form: "a number from 1 to 1000".
	Want string
}

// Error says the field, the value and the allowed form in one line.
func (e *RequestError) Error() string {
	return fmt.Sprintf("%s %q: want %s", e.Field, e.Value, e.Want)
}

// Is reports that every RequestError is an ErrRequest.
func (e *RequestError) Is(target error) bool { return target == ErrRequest }

// The kinds and layers of a probe.
const (
	KindPostgres = "pg"
	KindTCP      = "tcp"
	KindUDP      = "udp"
	KindHTTP     = "http"
	KindGRPC     = "grpc"
	LayerDirect  = "direct"
	LayerProxy   = "proxy"
	LayerApp     = "app" // through the target's http-proxy
)

// Request says what to run.
type Request struct {
	// Kind of probe: pg (default), tcp, udp, http or grpc.
	Kind string
	// Target by name.
	Target string
	// Layer is "direct" (default) or "proxy".
	Layer string
	// Count of calls beside those of the warm-up, 1..1,000,000; default 200 where Duration
	// and Open are not set, else no limit. With a Duration, what is reached first ends the
	// run.
	Count int
	// Duration ends the run: no call is due after it, warm-up included. Up to 24 h;
	// 0: Count does, or the end of an open loop's stages.
	Duration time.Duration
	// Warmup marks the calls that are due in the run's first part. Up to 1 h, and less
	// than Duration; default 0.
	Warmup time.Duration
	// Concurrency of a closed loop, 1..1000; default 4. In an open loop it stays 0.
	Concurrency int
	// Pace of a closed loop is the least time between the starts of two calls, so that
	// the calls measure the path and not how many connections a second this machine can
	// make. Up to 1 min; default 60 ms, NoPace for none. In an open loop it stays 0.
	Pace time.Duration
	// Open makes it an open loop: calls start when they are due, whatever the others
	// do. Nil: a closed loop.
	Open *OpenLoop
	// Timeout is the budget of one call; with a policy, of one attempt where the policy
	// has no limit of its own. 1 ms..10 min; default 5 s.
	Timeout time.Duration
	// Threshold is the duration above which a call is slow and gets a cause. 1 ms..1 min;
	// default SlowThreshold.
	Threshold time.Duration
	// Seed of all that is drawn: arrivals, and what policies draw. 0: one is drawn, and
	// the summary says it.
	Seed uint64

	Postgres PostgresOptions
	TCP      TCPOptions
	UDP      UDPOptions
	HTTP     HTTPOptions
	GRPC     GRPCOptions
}

// OpenLoop is a schedule of calls that does not wait for answers.
type OpenLoop struct {
	// Stages follow one another, at least one and at most 1000. The run ends with the
	// last one unless Request.Duration or Count say more: then its last rate goes on.
	Stages []Stage
	// Poisson draws independent arrivals with the stages' rates; otherwise they are
	// evenly spaced.
	Poisson bool
	// MaxInFlight bounds the calls under way, 1..100,000; default 10,000. A call that
	// is due beyond it starts late, which its Latency contains.
	MaxInFlight int
}

// Stage is a part of an open loop's schedule.
type Stage struct {
	// For is how long it lasts, up to 24 h; 0 in the last stage only: to the run's end.
	For time.Duration
	// From and To are calls per second at its beginning and end, 0..100,000; in between
	// the rate changes evenly. A spike is a short stage of its own. The last stage's
	// To is above 0 where it has no end of its own.
	From, To float64
}

// PostgresOptions say what a call of the kind pg is.
type PostgresOptions struct {
	// Mode is call (default: connect, then one query that is prepared and executed),
	// connect, query (a simple query), prepared (a prepared one) or transaction (begin,
	// insert or query, commit).
	Mode string
	// Pool is the number of kept connections that calls share, 0..1000; 0: a new
	// connection for each call.
	Pool int
	// Query returns one row with one value; default "select 1". The server runs one of one's
	// own read-only, unless Write is set.
	Query string
	// Write says that the Query may change something. A policy then makes each call only
	// once, and is refused if it retries or hedges, unless Idempotent is set.
	Write bool
	// Idempotent says that what Query writes may be written more than once (RFC 9110, 9.2.2,
	// has the word): only beside Write.
	Idempotent bool
}

// TCPOptions say what a call of the kind tcp is.
type TCPOptions struct {
	// Mode is connect (default), echo (Bytes there and back), bulk (Bytes to a sink,
	// goodput) or download (Bytes from a source).
	Mode string
	// Bytes of payload, 1..1 GiB; default 64 for echo, 1 MiB for bulk and download.
	Bytes int
	// Keep sends all calls of a worker through one connection; not for connect.
	Keep bool
}

// UDPOptions say what a call of the kind udp is: one numbered packet to an echo
// server, which stamps it.
type UDPOptions struct {
	// Bytes of payload, 52..65,000; default 64.
	Bytes int
}

// HTTPOptions say what a call of the kind http is.
type HTTPOptions struct {
	// Version is 1.1 (default) or 2 (by prior knowledge; with TLS by ALPN).
	Version string
	// Method, default GET, and Path, default "/".
	Method, Path string
	// Bytes of the request's body, 0..64 MiB.
	Bytes int
	// Keep uses connections again; otherwise each call makes one.
	Keep bool
	// ReadTimeout bounds every single read of the answer; 0: none. The budget of the
	// call holds beside it.
	ReadTimeout time.Duration
	// TLS encrypts; the server's certificate is not checked.
	TLS bool
}

// GRPCOptions say what a call of the kind grpc is.
type GRPCOptions struct {
	// Mode is unary (default), server_stream, client_stream or bidi.
	Mode string
	// Messages of a stream, 1..1,000,000; default 10.
	Messages int
	// Bytes of each message, 0..4 MiB; default 64.
	Bytes int
	// New makes a channel for each call; otherwise all share one.
	New bool
}

// Limits and defaults of a Request.
const (
	DefaultCount       = 200
	MaxCount           = 1_000_000
	MaxDuration        = 24 * time.Hour
	MaxWarmup          = time.Hour
	DefaultConcurrency = 4
	MaxConcurrency     = 1000
	DefaultPace        = 60 * time.Millisecond
	NoPace             = time.Duration(-1)
	MaxPace            = time.Minute
	DefaultMaxInFlight = 10_000
	MaxMaxInFlight     = 100_000
	MaxStages          = 1000
	MaxRate            = 100_000
	DefaultTimeout     = 5 * time.Second
	MinTimeout         = time.Millisecond
	MaxTimeout         = 10 * time.Minute
	MaxThreshold       = time.Minute
	MaxPool            = 1000
)

// Length is when the last call may be due, from the run's start; 0 where only Count
// ends the run.
func (r Request) Length() time.Duration {
	if r.Duration > 0 || r.Open == nil || r.Count > 0 {
		return r.Duration
	}
	var sum time.Duration
	for _, s := range r.Open.Stages {
		sum += s.For
	}
	return sum
}
