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

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		after, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"120", "", 2 * time.Minute},
		{"-1", "", 0},
		{"1.5", "", 0},
		{"99999999999999999999", "", 0},
		{"9999999999", "", furthest},
		{"Sun, 01 Mar 2026 12:00:30 GMT", "", 30 * time.Second},
		{"Sun, 01 Mar 2026 12:00:30 GMT", "Sun, 01 Mar 2026 12:00:20 GMT", 10 * time.Second}, // by the server's clock
		{"Sun, 01 Mar 2026 11:00:00 GMT", "", 0},
		{"soon", "", 0},
	} {
		h := http.Header{}
		h.Set("Retry-After", c.after)
		h.Set("Date", c.date)
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%q at %q: %v, want %v", c.after, c.date, got, c.want)
		}
	}
}

// TestRetryAfterObeyed: the server's pause is kept between attempts, as the policy says.
func TestRetryAfterObeyed(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked++; asked == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer s.Close()
	p := &Probe{Address: s.Listener.Addr().(*net.TCPAddr).AddrPort()}
	defer func() { _ = p.Close() }()
	c, err := policy.New(policy.Policy{Retry: &policy.Retry{}}, p, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sample := c.Call(t.Context(), 0)
	if sample.Class != probe.OK || len(sample.Attempts) != 2 || sample.Attempts[0].PushbackNS != int64(time.Second) {
		t.Fatalf("%+v", sample)
	}
	if pause := sample.Attempts[1].StartNS - sample.Attempts[0].EndNS; pause < int64(time.Second) {
		t.Errorf("tried again after %v", time.Duration(pause))
	}
}
