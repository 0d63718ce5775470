package application

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"netemd/internal/fault"
)

// callLimit is how long one call of the API may take.
const callLimit = 5 * time.Second

// Set makes faults, which are of requests, all that the proxy behind a socket does, in that order and
// each until its Expires, and reads back. Those that are in force stay, with their counters; where
// only the time differs, that is what changes. The error is fs.ErrNotExist when no proxy is
// there.
func Set(ctx context.Context, socket string, faults []fault.Fault) error {
	want := make([]Rule, len(faults))
	for i, f := range faults {
		want[i] = Rule{ID: f.ID, Request: *f.Spec.Request, DeadlineUnixNS: f.Expires.UnixNano()}
	}
	got, err := call(ctx, socket, http.MethodPut, want)
	if err != nil {
		return fmt.Errorf("http-proxy: set: %w", err)
	}
	if len(got) != len(want) {
		return fmt.Errorf("http-proxy: set: read back: it has %d rules, asked for %d", len(got), len(want))
	}
	for i, g := range got {
		if g.ID != want[i].ID || !same(g.Request, want[i].Request) || g.DeadlineUnixNS != want[i].DeadlineUnixNS {
			return fmt.Errorf("http-proxy: set: read back: it has %s (%v), asked for %s (%v)", g.ID, g.Request, want[i].ID, want[i].Request)
		}
	}
	return nil
}

// Read returns what the proxy behind a socket has in force, with counters, in order; the State is
// fault.Expired of one that has ended by itself. The error is fs.ErrNotExist when no proxy is
// there. It tells the proxy that the agent lives.
func Read(ctx context.Context, socket string) ([]fault.Fault, error) {
	got, err := call(ctx, socket, http.MethodGet, nil)
	if err != nil {
		return nil, fmt.Errorf("http-proxy: read: %w", err)
	}
	var faults []fault.Fault
	for _, g := range got {
		f := fault.Fault{ID: g.ID, State: fault.Active, Expires: time.Unix(0, g.DeadlineUnixNS), Counters: g.Counters}
		f.Spec.Request = &g.Request
		if g.Over {
			f.State = fault.Expired
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// call is one call of the API.
func call(ctx context.Context, socket, method string, in any) ([]State, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("no answer on %s for %v", socket, callLimit))
	defer cancel()
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(b)
	}
	// The host is a placeholder: the socket is dialled whatever it says.
	request, err := http.NewRequestWithContext(ctx, method, "http://proxy"+rulesPath, body)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	answer, err := transport.RoundTrip(request)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err) // the proxy has died
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 1<<24))
	if err != nil {
		return nil, err
	}
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("answer %s: %s", answer.Status, strings.TrimSpace(string(text)))
	}
	var states []State
	return states, json.Unmarshal(text, &states)
}
