package probe

import (
	"errors"
	"fmt"
	"strconv"
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
)

// Request says what to run.
type Request struct {
	// Kind of probe: pg (default), tcp, udp, http or grpc.
	Kind string
	// Target by name.
	Target string
	// Layer is "direct" (default) or "proxy".
	Layer string
	// Count of calls, 1..1,000,000; default 200 where Duration and Open are not set,
	// else no limit. With a Duration, what is reached first ends the run.
	Count int
	// Duration ends the run: no call starts after it, warm-up included. Up to 24 h;
	// 0: Count does.
	Duration time.Duration
	// Warmup marks the calls that are due in the run's first part. Up to 1 h; default 0.
	Warmup time.Duration
	// Concurrency of a closed loop, 1..1000; default 4.
	Concurrency int
	// Pace of a closed loop is the least time between the starts of two calls, so that
	// the calls measure the path and not how many connections a second this machine can
	// make. Up to 1 min; default 60 ms, NoPace for none.
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
	// Stages follow one another; the last one goes on to the run's end.
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
	// For is how long it lasts; 0 in the last stage only: to the run's end.
	For time.Duration
	// From and To are calls per second at its beginning and end, 0..100,000; in between
	// the rate changes evenly. A spike is a short stage of its own.
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
	// Query returns one row with one value; default "select 1".
	Query string
}

// TCPOptions say what a call of the kind tcp is.
type TCPOptions struct {
	// Mode is connect (default), echo (Bytes there and back) or bulk (Bytes to a sink,
	// goodput).
	Mode string
	// Bytes of payload, 1..1 GiB; default 64 for echo, 1 MiB for bulk.
	Bytes int
	// Keep sends all calls of a worker through one connection; not for connect.
	Keep bool
}

// UDPOptions say what a call of the kind udp is: one numbered packet to an echo
// server, which stamps it.
type UDPOptions struct {
	// Bytes of payload, 48..65,000; default 64.
	Bytes int
}

// HTTPOptions say what a call of the kind http is.
type HTTPOptions struct {
	// Version is 1.1 (default) or 2 (prior knowledge without TLS).
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
	DefaultConcurrency = 4
	MaxConcurrency     = 1000
	DefaultPace        = 60 * time.Millisecond
	NoPace             = time.Duration(-1)
	MaxPace            = time.Minute
	DefaultTimeout     = 5 * time.Second
	MinTimeout         = time.Millisecond
	MaxTimeout         = 10 * time.Minute
)

// WithDefaults returns the request with every zero field but Target set to its
// default.
func (r Request) WithDefaults() Request {
	if r.Kind == "" {
		r.Kind = KindPostgres
	}
	if r.Layer == "" {
		r.Layer = LayerDirect
	}
	if r.Count == 0 {
		r.Count = DefaultCount
	}
	if r.Concurrency == 0 {
		r.Concurrency = DefaultConcurrency
	}
	if r.Pace == 0 {
		r.Pace = DefaultPace
	}
	if r.Timeout == 0 {
		r.Timeout = DefaultTimeout
	}
	return r
}

// Validate returns every field that is out of its range, each as a *RequestError,
// joined. A zero field stands for its default and is in range.
func (r Request) Validate() error {
	r = r.WithDefaults()
	var errs []error
	refuse := func(bad bool, field, value, want string) {
		if bad {
			errs = append(errs, &RequestError{Field: field, Value: value, Want: want})
		}
	}
	refuse(r.Kind != KindPostgres, "kind", r.Kind, "pg")
	refuse(r.Layer != LayerDirect && r.Layer != LayerProxy, "layer", r.Layer, "direct or proxy")
	refuse(r.Count < 1 || r.Count > MaxCount, "count", strconv.Itoa(r.Count), "a number from 1 to 1000000")
	refuse(r.Concurrency < 1 || r.Concurrency > MaxConcurrency, "concurrency", strconv.Itoa(r.Concurrency), "a number from 1 to 1000")
	refuse(r.Pace < 0 && r.Pace != NoPace || r.Pace > MaxPace, "pace", r.Pace.String(), "a duration from 0s to 1m, such as 60ms")
	refuse(r.Timeout < MinTimeout || r.Timeout > MaxTimeout, "timeout", r.Timeout.String(), "a duration from 1ms to 10m, such as 5s")
	return errors.Join(errs...)
}
