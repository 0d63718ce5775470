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
	LayerDirect  = "direct"
	LayerProxy   = "proxy"
)

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
