package application

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"netemd/internal/fault"
	"netemd/probe/grpc/echo"
)

// echoes answers, tells its metadata back, and says how a call that hangs ended.
type echoes struct {
	echo.UnimplementedEchoServer
	ended chan error
}

func (e *echoes) Unary(ctx context.Context, r *echo.Request) (*echo.Reply, error) {
	m, _ := metadata.FromIncomingContext(ctx)
	_ = grpc.SetHeader(ctx, metadata.Pairs("x-head", "1", "x-bin", "\x00\xff"))
	_ = grpc.SetTrailer(ctx, metadata.Pairs("x-tail", "2"))
	switch {
	case r.GetText() == "hang":
		<-ctx.Done()
		e.ended <- context.Cause(ctx)
		return nil, status.FromContextError(ctx.Err()).Err()
	case r.GetStatus() != 0:
		return nil, status.Error(codes.Code(r.GetStatus()), "50 % wäre genug")
	}
	text := r.GetText()
	if v := m.Get("x-sent"); len(v) > 0 {
		text += v[0]
	}
	return &echo.Reply{Text: text, Payload: make([]byte, r.GetBytes())}, nil
}

func (e *echoes) Expand(r *echo.Request, s grpc.ServerStreamingServer[echo.Reply]) error {
	for i := range r.GetCount() {
		if err := s.Send(&echo.Reply{Number: i}); err != nil {
			return err
		}
	}
	if r.GetText() == "hang" {
		<-s.Context().Done()
		e.ended <- context.Cause(s.Context())
	}
	s.SetTrailer(metadata.Pairs("x-tail", "3"))
	return nil
}

func (*echoes) Collect(s grpc.ClientStreamingServer[echo.Request, echo.Reply]) error {
	n := uint32(0)
	for {
		_, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return s.SendAndClose(&echo.Reply{Number: n})
		}
		if err != nil {
			return err
		}
		n++
	}
}

func (*echoes) Exchange(s grpc.BidiStreamingServer[echo.Request, echo.Reply]) error {
	for {
		r, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if r.GetStatus() != 0 {
			return status.Error(codes.Code(r.GetStatus()), "as asked for") // while the client still sends
		}
		if err := s.Send(&echo.Reply{Text: r.GetText()}); err != nil {
			return err
		}
	}
}

// startCalls is a client of a server through the proxy.
func startCalls(t testing.TB, o ...grpc.DialOption) (echo.EchoClient, *echoes, *rules) {
	t.Helper()
	server, e := grpc.NewServer(), &echoes{ended: make(chan error, 1)}
	echo.RegisterEchoServer(server, e)
	upstream := serveTCP(t, func(ctx context.Context, l *net.TCPListener) error {
		go func() { <-ctx.Done(); server.Stop() }()
		return server.Serve(l)
	})
	address, r := startProxy(t, upstream)
	c, err := grpc.NewClient("passthrough:"+address, append(o, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return echo.NewEchoClient(c), e, r
}

func TestCallsPass(t *testing.T) {
	c, _, _ := startCalls(t)
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "x-sent", "+sent"), 20*time.Second)
	defer cancel()
	var head, tail metadata.MD
	m, err := c.Unary(ctx, &echo.Request{Text: "a", Bytes: 1 << 20}, grpc.Header(&head), grpc.Trailer(&tail))
	if err != nil || m.GetText() != "a+sent" || len(m.GetPayload()) != 1<<20 || head.Get("x-head")[0] != "1" || head.Get("x-bin")[0] != "\x00\xff" || tail.Get("x-tail")[0] != "2" {
		t.Errorf("unary: %q, %v, %v, %v", m.GetText(), err, head, tail)
	}
	// A server that answers with a status alone sends headers alone, which have to stay that.
	head, tail = nil, nil
	_, err = c.Unary(ctx, &echo.Request{Status: uint32(codes.NotFound)}, grpc.Trailer(&tail))
	if s := status.Convert(err); s.Code() != codes.NotFound || s.Message() != "50 % wäre genug" || tail.Get("x-tail")[0] != "2" {
		t.Errorf("status: %v, %v", err, tail)
	}
	down, err := c.Expand(ctx, &echo.Request{Count: 100})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		if _, err = down.Recv(); err != nil {
			break
		}
	}
	if !errors.Is(err, io.EOF) || n != 100 || down.Trailer().Get("x-tail")[0] != "3" {
		t.Errorf("server's stream: %d, %v, %v", n, err, down.Trailer())
	}
	up, err := c.Collect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if err := up.Send(&echo.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := up.CloseAndRecv(); err != nil || m.GetNumber() != 100 {
		t.Errorf("client's stream: %v, %v", m, err)
	}
	both, err := c.Exchange(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a", "b", "c"} { // in turn: nothing may be kept back
		if err := both.Send(&echo.Request{Text: text}); err != nil {
			t.Fatal(err)
		}
		if m, err := both.Recv(); err != nil || m.GetText() != text {
			t.Fatalf("both ways: %v, %v", m, err)
		}
	}
	if err := both.Send(&echo.Request{Status: uint32(codes.Aborted)}); err != nil {
		t.Fatal(err)
	}
	if _, err := both.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("both ways, a status before the client's end: %v", err)
	}
}

// TestCallsEnd: deadline and cancellation come to the server at once.
func TestCallsEnd(t *testing.T) {
	c, e, _ := startCalls(t)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := c.Unary(short, &echo.Request{Text: "hang"})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("deadline: %v", err)
	}
	wait := func(what string) {
		select {
		case err := <-e.ended:
			if err == nil {
				t.Errorf("%s: no cause", what)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: the server works for a client that has gone", what)
		}
	}
	wait("deadline")
	ctx, cancel := context.WithCancel(t.Context())
	s, err := c.Expand(ctx, &echo.Request{Text: "hang", Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := s.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	wait("cancelled")
}

func TestCallsAreAnswered(t *testing.T) {
	c, _, r := startCalls(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	calls := map[string]func() error{
		"unary": func() error { _, err := c.Unary(ctx, &echo.Request{}); return err },
		"server's stream": func() error {
			s, err := c.Expand(ctx, &echo.Request{Count: 3})
			if err == nil {
				_, err = s.Recv()
			}
			return err
		},
		"client's stream": func() error {
			s, err := c.Collect(ctx)
			if err == nil {
				_ = s.Send(&echo.Request{})
				_, err = s.CloseAndRecv()
			}
			return err
		},
		"both ways": func() error {
			s, err := c.Exchange(ctx)
			if err == nil {
				_ = s.Send(&echo.Request{})
				_, err = s.Recv()
			}
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			r.set([]Rule{in("kqv1", fault.Request{Error: 100, Code: "RESOURCE_EXHAUSTED"})})
			if s := status.Convert(call()); s.Code() != codes.ResourceExhausted || s.Message() != "fault kqv1 of netemd" {
				t.Errorf("a code: %v", s)
			}
			r.set([]Rule{in("kqv2", fault.Request{Error: 100, Status: 503})})
			if err := call(); status.Code(err) != codes.Unavailable { // gRPC's http-grpc-status-mapping.md
				t.Errorf("a status of HTTP: %v", err)
			}
			r.set([]Rule{in("kqv3", fault.Request{Abort: 100})})
			if err := call(); status.Code(err) != codes.Internal {
				t.Errorf("RST_STREAM: %v", err)
			}
			r.set([]Rule{in("kqv4", fault.Request{Delay: 100, Latency: 30 * time.Millisecond, Path: "/netemd.testbed.v1.Echo/*"})})
			began := time.Now()
			if err := call(); err != nil || time.Since(began) < 30*time.Millisecond {
				t.Errorf("a delay: %v after %v", err, time.Since(began))
			}
			r.set([]Rule{in("kqv5", fault.Request{Error: 100, Status: 503, Code: "UNAVAILABLE", Path: "/other.Service/*"})})
			if err := call(); err != nil {
				t.Errorf("another method: %v", err)
			}
			r.set(nil)
		})
	}
}

// TestPushback has a client of gRPC's own retry when it is told to, and not before.
func TestPushback(t *testing.T) {
	c, _, r := startCalls(t, grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy":
		{"maxAttempts": 2, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`))
	f := fault.Request{Error: 50, Code: "UNAVAILABLE", Pushback: 300 * time.Millisecond}
	for f.Seed = 1; ; f.Seed++ { // an error, and then none
		first, _ := f.Draw(0)
		second, _ := f.Draw(1)
		if first == fault.Answered && second == fault.Passed {
			break
		}
	}
	r.set([]Rule{in("kqv1", f)})
	defer r.set(nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	began := time.Now()
	if _, err := c.Unary(ctx, &echo.Request{}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 300*time.Millisecond {
		t.Errorf("the client tried again after %v, and was told 300ms", took)
	}
}
