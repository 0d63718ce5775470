package grpc

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"netemd/probe"
	"netemd/probe/grpc/echo"
	"netemd/probe/policy"
)

func TestPushback(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   int64
	}{
		{nil, 0},
		{[]string{"0"}, 0},
		{[]string{"1500"}, int64(1500 * time.Millisecond)},
		{[]string{"-1"}, probe.NoRetry},
		{[]string{"soon"}, probe.NoRetry},
		{[]string{"99999999999"}, probe.NoRetry},
		{[]string{"1", "2"}, probe.NoRetry},
	} {
		trailer := metadata.MD{}
		trailer.Set(pushbackKey, c.values...)
		if got := pushback(trailer); got != c.want {
			t.Errorf("%q: %d, want %d", c.values, got, c.want)
		}
	}
}

// pushing asks for a pause with its errors, or for no retry.
type pushing struct {
	echo.UnimplementedEchoServer
	asks  []string
	calls int
}

func (p *pushing) Unary(ctx context.Context, r *echo.Request) (*echo.Reply, error) {
	if p.calls++; p.calls > len(p.asks) {
		return &echo.Reply{Text: r.GetText()}, nil
	}
	if err := grpc.SetTrailer(ctx, metadata.Pairs(pushbackKey, p.asks[p.calls-1])); err != nil {
		return nil, err
	}
	return nil, status.Error(codes.Unavailable, "not now")
}

// TestPushbackObeyed: a pause is kept, and a number below 0 ends the call.
func TestPushbackObeyed(t *testing.T) {
	s := &pushing{asks: []string{"300", "-1"}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	echo.RegisterEchoServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	defer func() {
		g.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	p := &Probe{Address: l.Addr().(*net.TCPAddr).AddrPort(), Bytes: 8}
	defer func() { _ = p.Close() }()
	c, err := policy.New(policy.Policy{Retry: &policy.Retry{MaxAttempts: 5}}, p, policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sample := c.Call(t.Context(), 0)
	if sample.Class != probe.Server || len(sample.Attempts) != 2 || sample.PushbackNS != probe.NoRetry {
		t.Fatalf("%+v", sample)
	}
	if pause := sample.Attempts[1].StartNS - sample.Attempts[0].EndNS; pause < int64(300*time.Millisecond) {
		t.Errorf("tried again after %v", time.Duration(pause))
	}
}
