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

// TestReplay: an answer that an earlier request had is known by its header, also behind an
// attempt that failed, and counted.
func TestReplay(t *testing.T) {
	keys := map[string]int{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get(policy.HeaderIdempotencyKey)
		if keys[key]++; keys[key] == 1 {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set(policy.HeaderIdempotencyReplay, "true")
	}))
	defer s.Close()
	p := &Probe{Address: s.Listener.Addr().(*net.TCPAddr).AddrPort(), Method: "POST"}
	defer func() { _ = p.Close() }()
	for key, want := range map[string]int{policy.PerCall: 2, policy.PerRun: 2, policy.PerAttempt: 0} {
		clear(keys)
		c, err := policy.New(policy.Policy{Idempotency: &policy.Idempotency{Key: key}, Retry: &policy.Retry{MaxAttempts: 2, Base: time.Millisecond}}, p, policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		parts := [2]*probe.Recorder{probe.NewRecorder("", "", probe.SlowThreshold), probe.NewRecorder("", "", probe.SlowThreshold)}
		for i, r := range parts {
			sample := c.Call(t.Context(), i)
			if r.Add(sample); sample.Replay != (sample.Class == probe.OK) || sample.Attempts[0].Replay && key != policy.PerRun {
				t.Errorf("%s: %+v", key, sample)
			}
		}
		parts[0].Merge(parts[1])
		if got := parts[0].Summary(""); got.Replays != want {
			t.Errorf("%s: %d replays, want %d", key, got.Replays, want)
		}
	}
}
