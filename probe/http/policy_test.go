package http

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"netemd/probe"
	"netemd/probe/policy"
)

// TestToldByPolicy: what a policy says of an attempt reaches the server.
func TestToldByPolicy(t *testing.T) {
	got := make(chan http.Header, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer s.Close()
	p := &Probe{Address: s.Listener.Addr().(*net.TCPAddr).AddrPort()}
	defer func() { _ = p.Close() }()
	c, err := policy.New(policy.Policy{
		CallTimeout: 20 * time.Second, Deadline: &policy.Deadline{}, Idempotency: &policy.Idempotency{Key: policy.PerCall},
		Retry: &policy.Retry{MaxAttempts: 2},
	}, p, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sample := c.Call(t.Context(), 0)
	if sample.Class != probe.Server || len(sample.Attempts) != len(got) {
		t.Errorf("%+v, the server saw %d requests", sample, len(got))
	}
	key := ""
	for len(got) > 0 {
		h := <-got
		if h.Get(policy.HeaderTimeout) == "" || h.Get(policy.HeaderIdempotencyKey) == "" || key != "" && h.Get(policy.HeaderIdempotencyKey) != key {
			t.Errorf("headers %v", h)
		}
		key = h.Get(policy.HeaderIdempotencyKey)
	}
}
