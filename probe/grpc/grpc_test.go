package grpc

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"netemd/probe"
	"netemd/probe/grpc/echo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is the echo service, or one that says always the same.
type server struct {
	echo.UnimplementedEchoServer
	says error
	// hang answers nothing.
	hang bool
}

func (s server) answer(ctx context.Context, r *echo.Request, n uint32) (*echo.Reply, error) {
	if s.hang {
		<-ctx.Done()
	}
	return &echo.Reply{Text: r.GetText(), Number: n}, s.says
}

func (s server) Unary(ctx context.Context, r *echo.Request) (*echo.Reply, error) {
	return s.answer(ctx, r, 1)
}

func (s server) Expand(r *echo.Request, stream grpc.ServerStreamingServer[echo.Reply]) error {
	for i := range r.GetCount() {
		m, err := s.answer(stream.Context(), r, i)
		if err == nil {
			err = stream.Send(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s server) Collect(stream grpc.ClientStreamingServer[echo.Request, echo.Reply]) error {
	last := &echo.Request{}
	for n := uint32(0); ; n++ {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			m, err := s.answer(stream.Context(), last, n)
			if err != nil {
				return err
			}
			return stream.SendAndClose(m)
		}
		if err != nil {
			return err
		}
		last = r
	}
}

func (s server) Exchange(stream grpc.BidiStreamingServer[echo.Request, echo.Reply]) error {
	for {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		m, err := s.answer(stream.Context(), r, 1)
		if err == nil {
			err = stream.Send(m)
		}
		if err != nil {
			return err
		}
	}
}

func serve(t *testing.T, s server) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(maxMessage))
	echo.RegisterEchoServer(g, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = g.Serve(l) }()
	t.Cleanup(func() { g.Stop(); <-done })
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// raw hands each connection to f.
func raw(t *testing.T, f func(c *net.TCPConn)) netip.AddrPort {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var (
		wg sync.WaitGroup
		mu sync.Mutex
		up []net.Conn
	)
	wg.Go(func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			mu.Lock()
			up = append(up, c)
			mu.Unlock()
			wg.Go(func() { f(c); _ = c.Close() })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range up {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func call(t *testing.T, p *Probe, budget time.Duration) (probe.Sample, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), budget, errors.New("the budget"))
	defer cancel()
	at := time.Now()
	s := p.Call(ctx, 3)
	return s, time.Since(at)
}

// bounded makes a call that may take 300 ms, and wants it back 200 ms later at most. The
// machine may stop for a moment.
func bounded(t *testing.T, p *Probe) probe.Sample {
	t.Helper()
	for try := 1; ; try++ {
		s, d := call(t, p, 300*time.Millisecond)
		if d <= 500*time.Millisecond {
			return s
		}
		if try == 5 {
			t.Errorf("the call took %v, want 200 ms beyond its budget at most", d)
			return s
		}
	}
}

func TestModes(t *testing.T) {
	for _, test := range []struct {
		mode            string
		messages, turns int
		bytes           int64
	}{{Unary, 0, 1, 1000}, {ServerStream, 5, 1, 5000}, {ClientStream, 5, 1, 1000}, {Bidi, 5, 6, 5000}} {
		for _, fresh := range []bool{true, false} {
			t.Run(test.mode+map[bool]string{true: " new"}[fresh], func(t *testing.T) {
				at := serve(t, server{})
				p := &Probe{Address: at, Mode: test.mode, Messages: test.messages, Bytes: 1000, New: fresh}
				defer func() { _ = p.Close() }()
				var local netip.AddrPort
				for i := range 3 {
					s, _ := call(t, p, 20*time.Second)
					if s.Class != probe.OK || s.Bytes != test.bytes || s.Remote != at || !s.Local.IsValid() || len(s.Policy) != 0 {
						t.Fatalf("call %d: %+v", i, s)
					}
					again := !fresh && i > 0
					if s.Reused != again || (s.ConnectNS > 0) == again || again && s.Local != local {
						t.Errorf("call %d: reused %v, connect %d, local %v after %v", i, s.Reused, s.ConnectNS, s.Local, local)
					}
					local = s.Local
					want, turns := "pool send first_byte body", test.turns
					if !again {
						want, turns = "connect settings send first_byte body", test.turns+1
					}
					var names []string
					sum := int64(0)
					for _, ph := range s.Phases {
						names, sum = append(names, ph.Name), sum+ph.NS
					}
					if got := strings.Join(names, " "); got != want || sum > s.EndNS-s.StartNS {
						t.Errorf("call %d: phases %q of %d ns, want %q in %d", i, got, sum, want, s.EndNS-s.StartNS)
					}
					// A new connection acknowledges the server's settings when it likes: where that falls
					// between the answer's header and its data, it is a turn.
					if s.Turns != turns && (!fresh || s.Turns != turns+1) {
						t.Errorf("call %d: %d turns, want %d: %+v", i, s.Turns, turns, s.Phases)
					}
					if runtime.GOOS == "linux" && (s.Info == nil || s.Info.RTTNS <= 0) {
						t.Errorf("TCP_INFO %+v", s.Info)
					}
				}
			})
		}
	}
}

func TestClasses(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	at := gone.Addr().(*net.TCPAddr).AddrPort()
	says := func(c codes.Code) netip.AddrPort { return serve(t, server{says: status.Error(c, "no")}) }
	answer := func(text string) netip.AddrPort {
		return raw(t, func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, text)
			_ = c.CloseWrite()
			_, _ = io.Copy(io.Discard, c) // what is left unread would make it a reset
		})
	}
	// through passes a number of bytes of the server's answer, then ends the connection.
	through := func(n int, reset bool) netip.AddrPort {
		to := serve(t, server{})
		return raw(t, func(c *net.TCPConn) {
			far, err := net.Dial("tcp", to.String())
			if err != nil {
				return
			}
			var asked sync.WaitGroup
			asked.Go(func() { _, _ = io.Copy(far, struct{ io.Reader }{c}); _ = far.Close() })
			_, _ = io.CopyN(struct{ io.Writer }{c}, far, int64(n))
			if reset {
				_ = c.SetLinger(0)
			} else {
				_ = c.CloseWrite()
				asked.Wait() // what is left unread would make it a reset
			}
			_ = c.Close() // ends the other way, too
		})
	}
	tests := []struct {
		name string
		at   netip.AddrPort
		want probe.Class
	}{
		{"nobody listens", at, probe.Refused},
		{"the server's no", says(codes.InvalidArgument), probe.Server},
		{"the server's unavailable", says(codes.Unavailable), probe.Server},
		{"the server's own deadline", says(codes.DeadlineExceeded), probe.Timeout},
		{"the server hangs", serve(t, server{hang: true}), probe.Timeout},
		{"silence", raw(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }), probe.Timeout},
		{"nobody reads", raw(t, func(*net.TCPConn) { time.Sleep(time.Second) }), probe.Timeout},
		{"closed at once", answer(""), probe.EOF},
		{"reset at once", raw(t, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)); _ = c.SetLinger(0) }), probe.Reset},
		{"another protocol", answer("HTTP/1.1 400 Bad Request\r\n\r\n"), probe.Protocol},
		{"closed in the answer", through(80, false), probe.EOF},
		{"reset in the answer", through(80, true), probe.Reset},
	}
	for _, test := range tests {
		for _, fresh := range []bool{true, false} {
			t.Run(test.name+map[bool]string{true: " (new)"}[fresh], func(t *testing.T) {
				p := &Probe{Address: test.at, New: fresh, Bytes: 1000}
				for range 2 {
					s := bounded(t, p)
					if s.Class != test.want || s.Error == "" {
						t.Errorf("class %q (%s), want %q", s.Class, s.Error, test.want)
					}
				}
				at := time.Now()
				if err := p.Close(); err != nil || time.Since(at) > 3*time.Second {
					t.Errorf("%v after %v", err, time.Since(at))
				}
			})
		}
	}
}

// TestBigMessageNobodyReads: what is stuck in the connection does not hold up the end.
func TestBigMessageNobodyReads(t *testing.T) {
	to := serve(t, server{})
	at := raw(t, func(c *net.TCPConn) { // the first exchange passes, then nobody reads
		far, err := net.Dial("tcp", to.String())
		if err != nil {
			return
		}
		_, _ = io.CopyN(far, struct{ io.Reader }{c}, 60)
		time.AfterFunc(time.Second, func() { _ = far.Close() })
		_, _ = io.Copy(struct{ io.Writer }{c}, far)
	})
	for _, mode := range []string{Unary, ClientStream} {
		p := &Probe{Address: at, New: true, Mode: mode, Bytes: 4 << 20}
		if s := bounded(t, p); s.Class != probe.Timeout {
			t.Errorf("%s: %+v", mode, s)
		}
		_ = p.Close()
	}
}

// TestSharedAtOnce: parallel calls share one connection, and after its end they have
// another one, without a wait of minutes.
func TestSharedAtOnce(t *testing.T) {
	before := files(t)
	var conns sync.Map
	var made atomic.Int32
	to := serve(t, server{})
	at := raw(t, func(c *net.TCPConn) {
		made.Add(1)
		conns.Store(c, true)
		far, err := net.Dial("tcp", to.String())
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(far, struct{ io.Reader }{c}); _ = far.Close() }()
		_, _ = io.Copy(struct{ io.Writer }{c}, far)
	})
	p := &Probe{Address: at, Bytes: 64}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range 5 {
				if s, _ := call(t, p, 20*time.Second); s.Class != probe.OK {
					t.Errorf("%+v", s)
				}
			}
		})
	}
	wg.Wait()
	if n := made.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	conns.Range(func(c, _ any) bool { _ = c.(*net.TCPConn).Close(); return true })
	failed := 0
	for began := time.Now(); ; failed++ {
		s, _ := call(t, p, 20*time.Second)
		if s.Class == probe.OK {
			break
		}
		if s.Class != probe.EOF && s.Class != probe.Reset {
			t.Errorf("%+v", s)
		}
		if time.Since(began) > 20*time.Second {
			t.Fatal("no new connection")
		}
	}
	if failed > 1 {
		t.Errorf("%d calls failed for one broken connection", failed)
	}
	_ = p.Close()
	for i := 0; files(t) > before+2 && i < 300; i++ { // two listeners stay
		time.Sleep(10 * time.Millisecond)
	}
	if n := files(t); n > before+2 {
		t.Errorf("%d descriptors are open, before there were %d", n, before)
	}
	if s, _ := call(t, p, time.Second); s.Class != probe.Other {
		t.Errorf("after Close: %+v", s)
	}
}

func files(t *testing.T) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil && runtime.GOOS == "linux" {
		t.Fatal(err)
	}
	return len(l)
}

// TestClassOfAnEarlierTry: a call that fails while the channel tries again is told why the try
// before failed.
func TestClassOfAnEarlierTry(t *testing.T) {
	underWay := &link{done: make(chan struct{})}
	const words = `connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.1:1: connect: `
	for text, want := range map[string]probe.Class{
		words + `connection refused"`:       probe.Refused,
		words + `connection reset by peer"`: probe.Reset,
		words + `no route to host"`:         probe.Other,
	} {
		if got := class(status.New(codes.Unavailable, text), false, false, underWay); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
