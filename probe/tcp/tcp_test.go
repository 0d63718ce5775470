package tcp

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"netemd/probe"
)

// server hands each connection to f, closes it, and counts them.
type server struct {
	addr        netip.AddrPort
	connections atomic.Int32
}

func serve(t *testing.T, f func(c *net.TCPConn)) *server {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var (
		s  = &server{addr: l.Addr().(*net.TCPAddr).AddrPort()}
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
			s.connections.Add(1)
			mu.Lock()
			up = append(up, c)
			mu.Unlock()
			wg.Go(func() {
				f(c)
				_ = c.Close()
			})
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
	return s
}

// echoes copies by itself: splice would keep pipes.
func echoes(c *net.TCPConn) { _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) }

func transfers(c *net.TCPConn) { _ = Serve(c, nil) }

func call(t *testing.T, p *Probe, budget time.Duration) (probe.Sample, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	at := time.Now()
	s := p.Call(ctx, 3)
	return s, time.Since(at)
}

func TestModes(t *testing.T) {
	tests := []struct {
		p      *Probe
		f      func(*net.TCPConn)
		phases []string
		turns  int
		bytes  int64
	}{
		{&Probe{}, echoes, []string{"connect"}, 0, 0},
		{&Probe{Mode: Echo}, echoes, []string{"connect", "send", "first_byte", "body"}, 1, 64},
		{&Probe{Mode: Echo, Bytes: 1 << 20}, echoes, []string{"connect", "send", "first_byte", "body"}, -1, 1 << 20},
		{&Probe{Mode: Bulk, Bytes: 3 << 20}, transfers, []string{"connect", "send", "first_byte"}, 1, 3 << 20},
		{&Probe{Mode: Download}, transfers, []string{"connect", "send", "first_byte", "body"}, 1, 1 << 20},
	}
	for _, test := range tests {
		p := test.p
		t.Run(p.mode(), func(t *testing.T) {
			srv := serve(t, test.f)
			p.Address = srv.addr
			defer func() { _ = p.Close() }()
			s, _ := call(t, p, 30*time.Second)
			if s.Class != probe.OK || s.Seq != 3 || s.Bytes != test.bytes || s.ConnectNS <= 0 || s.Reused {
				t.Errorf("sample %+v", s)
			}
			if test.turns >= 0 && s.Turns != test.turns {
				t.Errorf("%d turns, want %d", s.Turns, test.turns)
			}
			if s.Remote != srv.addr || !s.Local.IsValid() {
				t.Errorf("ends %v, %v", s.Local, s.Remote)
			}
			var sum int64
			for i, ph := range s.Phases {
				if i >= len(test.phases) || ph.Name != test.phases[i] || ph.NS < 0 {
					t.Fatalf("phases %+v, want %v", s.Phases, test.phases)
				}
				sum += ph.NS
			}
			if len(s.Phases) != len(test.phases) || sum > s.EndNS-s.StartNS {
				t.Errorf("phases %+v, want %v within %d ns", s.Phases, test.phases, s.EndNS-s.StartNS)
			}
			if runtime.GOOS == "linux" && (s.Info == nil || s.Info.RTTNS <= 0) {
				t.Errorf("TCP_INFO %+v", s.Info)
			}
		})
	}
}

// TestKeep: calls one after the other share a connection; what broke while it was idle
// fails one call.
func TestKeep(t *testing.T) {
	for _, mode := range []string{Echo, Bulk, Download} {
		t.Run(mode, func(t *testing.T) {
			conns := make(chan *net.TCPConn, 10)
			srv := serve(t, func(c *net.TCPConn) {
				conns <- c
				if mode == Echo {
					echoes(c)
				} else {
					transfers(c)
				}
			})
			p := &Probe{Address: srv.addr, Mode: mode, Bytes: 1000, Keep: true}
			defer func() { _ = p.Close() }()
			for i := range 3 {
				if s, _ := call(t, p, 10*time.Second); s.Class != probe.OK || s.Reused != (i > 0) || (s.ConnectNS > 0) != (i == 0) || s.Turns != 1 {
					t.Errorf("call %d: %+v", i, s)
				}
			}
			if n := srv.connections.Load(); n != 1 {
				t.Fatalf("%d connections, want 1", n)
			}
			_ = (<-conns).Close()
			s, _ := call(t, p, 10*time.Second)
			if s.Class != probe.EOF && s.Class != probe.Reset || !s.Reused {
				t.Errorf("broken connection: %+v, want eof or reset", s)
			}
			if s, _ := call(t, p, 10*time.Second); s.Class != probe.OK || s.Reused {
				t.Errorf("after it: %+v, want a new connection", s)
			}
		})
	}
}

func TestClasses(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	read := func(c *net.TCPConn, n int) { _, _ = io.ReadFull(c, make([]byte, n)) }
	hang := func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }
	tests := []struct {
		name string
		mode string
		f    func(*net.TCPConn)
		want probe.Class
	}{
		{"nobody listens", Connect, nil, probe.Refused},
		{"reset", Echo, func(c *net.TCPConn) { read(c, 64); _ = c.SetLinger(0) }, probe.Reset},
		{"closed", Echo, func(c *net.TCPConn) { read(c, 64) }, probe.EOF},
		{"closed in the answer", Echo, func(c *net.TCPConn) { read(c, 64); _, _ = c.Write(piece(0, 10)) }, probe.EOF},
		{"another answer", Echo, func(c *net.TCPConn) { read(c, 64); _, _ = c.Write(make([]byte, 64)) }, probe.Protocol},
		{"silence", Echo, hang, probe.Timeout},
		{"one byte at a time", Echo, func(c *net.TCPConn) {
			for i := range 64 {
				time.Sleep(50 * time.Millisecond)
				if _, err := c.Write(piece(i, 1)); err != nil {
					return
				}
			}
		}, probe.Timeout},
		{"no sink", Bulk, echoes, probe.Protocol},
		{"a sink that got less", Bulk, func(c *net.TCPConn) { read(c, HeaderSize+1<<20); _, _ = c.Write(Header{Received, 5}.Marshal()) }, probe.Protocol},
		{"a sink that hangs", Bulk, hang, probe.Timeout},
		{"a sink that does not read", Bulk, func(*net.TCPConn) { time.Sleep(400 * time.Millisecond) }, probe.Timeout},
		{"a source that ends", Download, func(c *net.TCPConn) { read(c, HeaderSize); _, _ = c.Write(piece(0, 100)) }, probe.EOF},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := &Probe{Address: gone.Addr().(*net.TCPAddr).AddrPort(), Mode: test.mode, Keep: true}
			if test.name == "a sink that does not read" {
				p.Bytes = 64 << 20
			}
			if test.f != nil {
				p.Address = serve(t, test.f).addr
			}
			s, d := call(t, p, 300*time.Millisecond)
			for range 5 { // the machine may have stopped for a moment
				if d <= 500*time.Millisecond {
					break
				}
				s, d = call(t, p, 300*time.Millisecond)
			}
			if s.Class != test.want || s.Error == "" {
				t.Errorf("class %q, error %q; want %q", s.Class, s.Error, test.want)
			}
			if d > 500*time.Millisecond {
				t.Errorf("the call took %v, want 200 ms beyond its budget at most", d)
			}
			if len(p.idle) != 0 {
				t.Error("a connection that failed is kept")
			}
			_ = p.Close()
		})
	}
}

// TestCancelled: a call ends with its context, without a deadline too.
func TestCancelled(t *testing.T) {
	srv := serve(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	p := &Probe{Address: srv.addr, Mode: Echo}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	at := time.Now()
	if s := p.Call(ctx, 0); s.Class == probe.OK || time.Since(at) > 2*time.Second {
		t.Errorf("%+v after %v", s, time.Since(at))
	}
}

// TestManyAtOnce: parallel calls never share a connection, and all of them are closed.
func TestManyAtOnce(t *testing.T) {
	srv := serve(t, echoes)
	before := files(t)
	p := &Probe{Address: srv.addr, Mode: Echo, Keep: true}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				if s, _ := call(t, p, 10*time.Second); s.Class != probe.OK {
					t.Errorf("%+v", s)
				}
			}
		})
	}
	wg.Wait()
	if n := srv.connections.Load(); n > 8 {
		t.Errorf("%d connections for 8 workers", n)
	}
	_ = p.Close()
	for i := 0; files(t) > before && i < 200; i++ { // the server's ends
		time.Sleep(10 * time.Millisecond)
	}
	if n := files(t); n > before {
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

func BenchmarkEchoKept(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	p := &Probe{Address: l.Addr().(*net.TCPAddr).AddrPort(), Mode: Echo, Keep: true}
	defer func() { _ = p.Close() }()
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		if s := p.Call(ctx, 0); s.Class != probe.OK {
			b.Fatal(s.Error)
		}
		cancel()
	}
}
