package netemtest

import (
	"net/http"
	"reflect"
	"slices"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// RequestSpec is what happens to requests through the target's http-proxy, by one draw for each:
// a request of HTTP/1.1, or a stream of HTTP/2, as a gRPC call is one.
type RequestSpec struct {
	// Error is the share that is answered with Status (of HTTP), Code (of gRPC: "UNAVAILABLE") or
	// both, each where it fits; Delay the share that is held for Latency plus or minus Jitter;
	// Abort the share that is reset before any answer. Together at most 100 %.
	Error, Delay, Abort qdisc.Percent
	Status              int
	Code                string
	// RetryAfter, in whole seconds, and Pushback tell clients of HTTP and of gRPC when to try again.
	RetryAfter, Pushback time.Duration
	Latency, Jitter      time.Duration
	// Method, Path and Header select requests: Path is "/pay/*", or of gRPC "/shop.Cart/*"; a Header
	// has one value for each name.
	Method, Path string
	Header       http.Header
	// Seed gives request number k the same fate each time; 0 has one drawn.
	Seed uint64
}

// Request has a share of the requests through the target's http-proxy, Network.HTTPProxy, fail or wait:
//
//	netemtest.Request(t, "http", netemtest.RequestSpec{Error: 20, Status: 503})
func Request(t testing.TB, target string, r RequestSpec) *Fault {
	t.Helper()
	return Inject(t, Spec{Target: target, Request: r})
}

// request is nil for the zero value.
func (r RequestSpec) request() *fault.Request {
	if reflect.ValueOf(r).IsZero() {
		return nil
	}
	f := &fault.Request{
		Error: r.Error, Delay: r.Delay, Abort: r.Abort, Status: r.Status, Code: r.Code, RetryAfter: r.RetryAfter, Pushback: r.Pushback,
		Latency: r.Latency, Jitter: r.Jitter, Method: r.Method, Path: r.Path, Seed: r.Seed,
	}
	names := make([]string, 0, len(r.Header))
	for name := range r.Header {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		for _, v := range r.Header[name] {
			f.Headers = append(f.Headers, fault.Header{Name: name, Value: v})
		}
	}
	return f
}
