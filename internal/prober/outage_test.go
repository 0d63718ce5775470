package prober

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"netemd/probe"
)

// TestOutagesAreAsked: the network is asked from the first failure's end on, each 50 ms,
// until it answers, and not any more when calls succeed or the run ends.
func TestOutagesAreAsked(t *testing.T) {
	for _, test := range []struct {
		name     string
		healed   time.Duration // after the failure; 0: never
		success  time.Duration // 0: none
		end      time.Duration
		asks     int
		answered bool
	}{
		{"heals, and then a call succeeds", 500 * time.Millisecond, 2 * time.Second, 3 * time.Second, 11, true},
		{"a call succeeds first", 10 * time.Second, 300 * time.Millisecond, 2 * time.Second, 6, true},
		{"never heals", 0, 0, time.Second, 20, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				began := time.Now()
				asks := make(chan struct{}, 1000)
				o := outages{ask: func(ctx context.Context) bool {
					asks <- struct{}{}
					if test.healed > 0 && time.Since(began) >= test.healed {
						return true
					}
					<-ctx.Done()
					return false
				}}
				at := probe.Now()
				o.ended(ctx, probe.Sample{Class: probe.Timeout, StartNS: at, EndNS: at, Reused: true})
				if test.success > 0 {
					time.AfterFunc(test.success, func() {
						o.ended(ctx, probe.Sample{Class: probe.OK, StartNS: at + 1, EndNS: at + int64(test.success)})
					})
				}
				time.Sleep(test.end + time.Millisecond)
				stop()
				r := o.result()
				if r == nil || r.Count != 1 || r.List[0].Kept != 1 || (r.List[0].Network != nil) != test.answered || (r.List[0].Success != nil) != (test.success > 0) {
					t.Fatalf("%+v, want one outage, with an answer: %v", r, test.answered)
				}
				if n := len(asks); n < test.asks || n > test.asks+1 {
					t.Errorf("asked %d times, want %d", n, test.asks)
				}
			})
		})
	}
	if r := (&outages{}).result(); r != nil {
		t.Errorf("without a failure there is %+v", r)
	}
}

// TestAsks has the kinds of calls beside which the network is asked: no other connection may
// come between those that a fault counts.
func TestAsks(t *testing.T) {
	for _, c := range []struct {
		r    probe.Request
		want bool
	}{
		{probe.Request{Kind: probe.KindPostgres}, false},
		{probe.Request{Kind: probe.KindPostgres, Postgres: probe.PostgresOptions{Mode: "query", Pool: 1}}, true},
		{probe.Request{Kind: probe.KindPostgres, Layer: probe.LayerProxy, Postgres: probe.PostgresOptions{Mode: "query", Pool: 1}}, false},
		{probe.Request{Kind: probe.KindTCP}, false},
		{probe.Request{Kind: probe.KindTCP, TCP: probe.TCPOptions{Mode: "echo", Keep: true}}, true},
		{probe.Request{Kind: probe.KindHTTP}, false},
		{probe.Request{Kind: probe.KindHTTP, HTTP: probe.HTTPOptions{Keep: true}}, true},
		{probe.Request{Kind: probe.KindGRPC}, true},
		{probe.Request{Kind: probe.KindGRPC, Layer: "app"}, false},
		{probe.Request{Kind: probe.KindGRPC, GRPC: probe.GRPCOptions{New: true}}, false},
		{probe.Request{Kind: probe.KindUDP}, false},
	} {
		if got := asks(c.r.WithDefaults()); got != c.want {
			t.Errorf("%+v: %v", c.r, got)
		}
	}
}
