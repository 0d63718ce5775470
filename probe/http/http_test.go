package http

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"netemd/probe"
)

// good is a server of both versions that answers with as much as the path says, or a
// status.
func good(t *testing.T, encrypted bool) netip.AddrPort {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		switch {
		case strings.HasPrefix(r.URL.Path, "/status/"):
			code, _ := strconv.Atoi(r.URL.Path[len("/status/"):])
			w.WriteHeader(code)
		case r.URL.Path == "/abort":
			_, _ = io.WriteString(w, "some")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case r.URL.Path == "/hang":
			<-r.Context().Done()
		case r.URL.Path == "/half":
			_, _ = io.WriteString(w, "some")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprintf(w, "%s %s %d", r.Proto, r.Method, n)
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetHTTP2(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.EnableHTTP2 = true
	if encrypted {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s.Listener.Addr().(*net.TCPAddr).AddrPort()
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
	ctx, cancel := context.WithTimeoutCause(t.Context(), budget, context.DeadlineExceeded)
	defer cancel()
	at := time.Now()
	s := p.Call(ctx, 3)
	return s, time.Since(at)
}

func names(phases []probe.Phase) string {
	var n []string
	for _, p := range phases {
		n = append(n, p.Name)
	}
	return strings.Join(n, " ")
}

func TestGood(t *testing.T) {
	for _, version := range []string{V1, V2} {
		for _, encrypted := range []bool{false, true} {
			for _, keep := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/tls=%v/keep=%v", version, encrypted, keep), func(t *testing.T) {
					at := good(t, encrypted)
					p := &Probe{Address: at, Version: version, TLS: encrypted, Keep: keep, Method: "POST", Bytes: 100_000}
					defer func() { _ = p.Close() }()
					var local netip.AddrPort
					for i := range 3 {
						s, _ := call(t, p, 20*time.Second)
						proto := map[string]string{V1: "HTTP/1.1", V2: "HTTP/2.0"}[version]
						if s.Class != probe.OK || s.Bytes != int64(len(proto+" POST 100000")) || s.Seq != 3 || s.Remote != at || !s.Local.IsValid() {
							t.Fatalf("call %d: %+v", i, s)
						}
						again := keep && i > 0
						if s.Reused != again || (s.ConnectNS > 0) == again || again && s.Local != local {
							t.Errorf("call %d: reused %v, connect %d, local %v after %v", i, s.Reused, s.ConnectNS, s.Local, local)
						}
						local = s.Local
						want := "send first_byte body"
						if !again {
							if encrypted {
								want = "tls " + want
							}
							want = "connect " + want
						}
						if keep && version == V2 {
							want = "pool " + want
						}
						if got := names(s.Phases); got != want {
							t.Errorf("call %d: phases %q, want %q", i, got, want)
						}
						turns := 1
						if encrypted && !again {
							turns = 2
						}
						if s.Turns != turns {
							t.Errorf("call %d: %d turns, want %d: %+v", i, s.Turns, turns, s.Phases)
						}
						var sum int64
						for _, ph := range s.Phases {
							sum += ph.NS
						}
						if sum > s.EndNS-s.StartNS {
							t.Errorf("phases of %d ns in a call of %d ns", sum, s.EndNS-s.StartNS)
						}
						if runtime.GOOS == "linux" && (s.Info == nil || s.Info.RTTNS <= 0) {
							t.Errorf("TCP_INFO %+v", s.Info)
						}
					}
				})
			}
		}
	}
}

// TestClasses: what servers do, in both versions.
func TestClasses(t *testing.T) {
	for _, version := range []string{V1, V2} {
		for _, test := range []struct {
			path string
			want probe.Class
		}{
			{"/status/204", probe.OK}, {"/status/302", probe.OK}, {"/status/404", probe.Server}, {"/status/503", probe.Server},
			{"/abort", map[string]probe.Class{V1: probe.EOF, V2: probe.Reset}[version]}, {"/hang", probe.Timeout}, {"/half", probe.Timeout},
		} {
			t.Run(version+test.path, func(t *testing.T) {
				p := &Probe{Address: good(t, false), Version: version, Path: test.path, Keep: true}
				defer func() { _ = p.Close() }()
				s := bounded(t, p)
				if s.Class != test.want {
					t.Errorf("class %q (%s), want %q", s.Class, s.Error, test.want)
				}
			})
		}
	}
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

// TestMisbehaving: servers that are none, in plain and encrypted.
func TestMisbehaving(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	answer := func(text string) func(*net.TCPConn) {
		return func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = io.WriteString(c, text)
		}
	}
	const header = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
	stays := func(text string) func(*net.TCPConn) {
		return func(c *net.TCPConn) { answer(text)(c); _, _ = io.Copy(io.Discard, c) }
	}
	slowly := func(text string) func(*net.TCPConn) {
		return func(c *net.TCPConn) {
			_, _ = c.Read(make([]byte, 4096))
			for i := range len(text) {
				if _, err := c.Write([]byte{text[i]}); err != nil {
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	goAway := "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	tests := []struct {
		name  string
		p     *Probe
		f     func(*net.TCPConn)
		want  probe.Class
		bytes int64
	}{
		{"nobody listens", &Probe{}, nil, probe.Refused, 0},
		{"reset", &Probe{}, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)); _ = c.SetLinger(0) }, probe.Reset, 0},
		{"closed", &Probe{}, answer(""), probe.EOF, 0},
		{"closed in the header", &Probe{}, answer(header[:30]), probe.EOF, 0},
		{"closed in the body", &Probe{}, answer(header + "some"), probe.EOF, 4},
		{"garbage", &Probe{}, answer("\x00\x01\x02garbage\r\n\r\n"), probe.Protocol, 0},
		{"a bad header", &Probe{}, answer("HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n"), probe.Protocol, 0},
		{"a bad chunk", &Probe{}, answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), probe.Protocol, 0},
		{"silence", &Probe{}, stays(""), probe.Timeout, 0},
		{"silence after the header", &Probe{}, stays(header), probe.Timeout, 0},
		{"a slow body", &Probe{}, slowly(header + strings.Repeat("x", 100)), probe.Timeout, -1},
		{"a slow body within the read timeout", &Probe{ReadTimeout: 250 * time.Millisecond}, slowly(header + strings.Repeat("x", 100)), probe.Timeout, -1},
		{"nobody reads", &Probe{Method: "POST", Bytes: 64 << 20}, func(*net.TCPConn) { time.Sleep(time.Second) }, probe.Timeout, 0},
		{"2: reset", &Probe{Version: V2}, func(c *net.TCPConn) { _, _ = c.Read(make([]byte, 1)); _ = c.SetLinger(0) }, probe.Reset, 0},
		{"2: closed", &Probe{Version: V2}, answer(""), probe.EOF, 0},
		{"2: another protocol", &Probe{Version: V2}, answer("HTTP/1.1 400 Bad Request\r\n\r\n"), probe.Protocol, 0},
		{"2: going away", &Probe{Version: V2}, answer(goAway), probe.EOF, 0},
		{"2: silence", &Probe{Version: V2}, stays(""), probe.Timeout, 0},
		{"2: nobody reads", &Probe{Version: V2, Method: "POST", Bytes: 64 << 20}, func(*net.TCPConn) { time.Sleep(time.Second) }, probe.Timeout, 0},
		{"TLS with somebody who does not", &Probe{TLS: true}, answer("HTTP/1.1 400 Bad Request\r\n\r\n"), probe.Protocol, 0},
		{"TLS: silence", &Probe{TLS: true}, stays(""), probe.Timeout, 0},
		{"TLS: closed", &Probe{TLS: true}, answer(""), probe.EOF, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p := test.p
			p.Keep = true
			p.Address = gone.Addr().(*net.TCPAddr).AddrPort()
			if test.f != nil {
				p.Address = raw(t, test.f)
			}
			s := bounded(t, p)
			if s.Class != test.want || s.Error == "" || test.bytes >= 0 && s.Bytes != test.bytes {
				t.Errorf("class %q, error %q, %d bytes; want %q, %d bytes", s.Class, s.Error, s.Bytes, test.want, test.bytes)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestReadTimeout: it ends a call that is silent for so long, and its budget holds beside
// it (see the slow body above).
func TestReadTimeout(t *testing.T) {
	for _, version := range []string{V1, V2} {
		for _, path := range []string{"/hang", "/half"} {
			for _, keep := range []bool{false, true} {
				p := &Probe{Address: good(t, false), Version: version, Path: path, ReadTimeout: 100 * time.Millisecond, Keep: keep}
				s, d := call(t, p, 20*time.Second)
				if s.Class != probe.Timeout || !strings.Contains(s.Error, "read timeout of 100ms") || d < 100*time.Millisecond || d > 10*time.Second {
					t.Errorf("%s%s: %+v after %v", version, path, s, d)
				}
				_ = p.Close()
			}
		}
	}
}

// TestNoReplay: a server that closes a kept connection when it is used again gets each
// request once; a client that repeats GETs by itself would hide every second failure.
func TestNoReplay(t *testing.T) {
	var requests atomic.Int32
	at := raw(t, func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		for i := range 2 {
			if _, err := http.ReadRequest(r); err != nil {
				return
			}
			requests.Add(1)
			if i == 0 {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
			}
		}
	})
	p := &Probe{Address: at, Keep: true}
	defer func() { _ = p.Close() }()
	const calls = 20
	failed, reused := 0, 0
	for range calls {
		s, _ := call(t, p, 20*time.Second)
		if s.Reused {
			reused++
		}
		if s.Class == probe.OK {
			continue
		}
		failed++
		if s.Class != probe.EOF && s.Class != probe.Reset || !s.Reused {
			t.Errorf("%+v", s)
		}
	}
	if n := requests.Load(); n != calls || failed != calls/2 || reused != calls/2 {
		t.Errorf("the server saw %d requests of %d calls, %d failed, %d reused a connection", n, calls, failed, reused)
	}
}

// TestClosedWhileIdle: a connection that the server has closed is not used again, and
// fails no call.
func TestClosedWhileIdle(t *testing.T) {
	at := raw(t, func(c *net.TCPConn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	p := &Probe{Address: at, Keep: true}
	defer func() { _ = p.Close() }()
	for range 3 {
		if s, _ := call(t, p, 20*time.Second); s.Class != probe.OK || s.Reused {
			t.Errorf("%+v", s)
		}
		for range 500 { // until the end of the connection is here
			p.mu.Lock()
			over := len(p.idle) == 0 || p.idle[0].http.Err() != nil
			p.mu.Unlock()
			if over {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// TestDeadConnection: the path of an HTTP/2 connection dies without a word. Calls time
// out until the health check gives it up; the next one makes another connection.
func TestDeadConnection(t *testing.T) {
	server := good(t, false)
	var dead atomic.Bool
	at := raw(t, func(c *net.TCPConn) { // a relay whose old connections stay dead
		up, err := net.Dial("tcp", server.String())
		if err != nil {
			return
		}
		mine := dead.Load()
		var wg sync.WaitGroup
		pass := func(to, from net.Conn) {
			b := make([]byte, 4096)
			for {
				n, err := from.Read(b)
				if err != nil {
					_ = to.Close()
					return
				}
				if mine || !dead.Load() {
					_, _ = to.Write(b[:n])
				}
			}
		}
		wg.Go(func() { pass(up, c) })
		wg.Go(func() { pass(c, up) })
		wg.Wait()
	})
	p := &Probe{Address: at, Version: V2, Keep: true, PingAfter: 400 * time.Millisecond, PingLimit: 400 * time.Millisecond}
	defer func() { _ = p.Close() }()
	if s, _ := call(t, p, 20*time.Second); s.Class != probe.OK {
		t.Fatalf("%+v", s)
	}
	dead.Store(true)
	began := time.Now()
	timeouts := 0
	for time.Since(began) < 20*time.Second {
		s, _ := call(t, p, 200*time.Millisecond)
		if s.Class == probe.OK {
			if s.Reused {
				t.Error("the dead connection was used")
			}
			break
		}
		if timeouts++; s.Class != probe.Timeout {
			t.Errorf("%+v", s)
		}
	}
	if d := time.Since(began); timeouts == 0 || d > 10*time.Second {
		t.Errorf("%d timeouts, the first success after %v", timeouts, d)
	}
}

// TestSharedAtOnce: parallel calls share one connection of HTTP/2, however they come.
func TestSharedAtOnce(t *testing.T) {
	before := files(t)
	p := &Probe{Address: good(t, false), Version: V2, Keep: true}
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		ends  = map[netip.AddrPort]int{}
		fresh int
	)
	for range 20 {
		wg.Go(func() {
			for range 5 {
				s, _ := call(t, p, 20*time.Second)
				if s.Class != probe.OK {
					t.Errorf("%+v", s)
				}
				mu.Lock()
				ends[s.Local]++
				if !s.Reused {
					fresh++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(ends) != 1 || fresh != 1 {
		t.Errorf("%d connections, %d calls made one, want one each", len(ends), fresh)
	}
	_ = p.Close()
	for i := 0; files(t) > before+1 && i < 300; i++ { // the server has its listener
		time.Sleep(10 * time.Millisecond)
	}
	if n := files(t); n > before+1 {
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
