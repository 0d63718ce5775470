package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/qdisc"
)

func wantToxics(t *testing.T, p *process, want ...fault.Toxic) {
	t.Helper()
	got, err := New(Config{}).Read(context.Background(), p.socket)
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Fatalf("toxics (-want +got): %s\n%v", d, err)
	}
}

// cleared is for eventually: nil once p has no toxics and forwards.
func cleared(p *process) error {
	got, err := New(Config{}).Read(context.Background(), p.socket)
	if err != nil {
		return err
	}
	if len(got) > 0 {
		return fmt.Errorf("toxics %v", got)
	}
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if got, err := roundTrip(c, "x"); got != "x" {
		return fmt.Errorf("round trip: %w", err)
	}
	return nil
}

var latency = fault.Toxic{Kind: fault.Latency, Latency: 50 * time.Millisecond}

func TestSetReplacesTheWholeState(t *testing.T) {
	p := startProxy(t, upstream(t, echo))
	wantToxics(t, p)
	all := []fault.Toxic{
		{Kind: fault.Slicer, Stream: fault.Upstream, Toxicity: 100, AverageSize: 100, SizeVariation: 7, Delay: 3 * time.Microsecond},
		{Kind: fault.Latency, Stream: fault.Downstream, Toxicity: 7, Latency: time.Second, Jitter: 20 * time.Millisecond},
		{Kind: fault.Timeout, Stream: fault.Downstream, Toxicity: 0.0001},
		{Kind: fault.ResetPeer, Stream: fault.Downstream, Toxicity: 33.3333, Timeout: time.Hour},
		{Kind: fault.LimitData, Stream: fault.Downstream, Toxicity: 99.9999, Bytes: qdisc.MaxBytes},
		{Kind: fault.Bandwidth, Stream: fault.Downstream, Toxicity: 100, Rate: 1000},
	}
	set(t, p, all...)
	wantToxics(t, p, all...)
	set(t, p, fault.Toxic{Kind: fault.Down}, latency)
	wantToxics(t, p, fault.Toxic{Kind: fault.Down}, latency.Normalize())
	set(t, p, latency)
	wantToxics(t, p, latency.Normalize())
	set(t, p)
	wantToxics(t, p)
}

func TestRefusedSetChangesNothing(t *testing.T) {
	p := startProxy(t, upstream(t, echo))
	set(t, p, latency)
	e, soon := New(Config{}), time.Now().Add(time.Minute)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, call := range map[string]func() error{
		"invalid toxic": func() error {
			return e.Set(context.Background(), p.socket, []fault.Toxic{{Kind: fault.LimitData}}, soon)
		},
		"past deadline": func() error {
			return e.Set(context.Background(), p.socket, []fault.Toxic{{Kind: fault.Down}}, time.Now().Add(-time.Second))
		},
		"cancelled": func() error { return e.Set(gone, p.socket, []fault.Toxic{{Kind: fault.Down}}, soon) },
		"no deadline": func() error {
			return e.control(p.socket).call(context.Background(), "PUT", faultPath, order{}, nil)
		},
		"unknown kind": func() error {
			return e.control(p.socket).call(context.Background(), "PUT", faultPath, map[string]any{
				"enabled": true, "deadline_unix_ns": soon.UnixNano(), "toxics": []wireToxic{{Name: "a", Type: "nope", Stream: "upstream"}},
			}, nil)
		},
	} {
		if err := call(); err == nil {
			t.Errorf("%s: no error", name)
		}
		wantToxics(t, p, latency.Normalize())
	}
}

// The same toxics with another deadline, and a clear of nothing, are no events for
// the connections.
func TestWhatChangesNothingCutsNothing(t *testing.T) {
	p := startProxy(t, upstream(t, echo))
	still := func(c net.Conn) {
		t.Helper()
		if got, err := roundTrip(c, "x"); got != "x" {
			t.Fatal(err)
		}
	}
	c := dial(t, p.address)
	set(t, p)
	still(c)
	set(t, p, latency)
	c = dial(t, p.address)
	still(c)
	set(t, p, latency)
	still(c)
}

// While clients connect in a loop, no call that starts after Set has returned
// is clean, and after Clear none is delayed.
func TestNoCallEscapes(t *testing.T) {
	p := startProxy(t, upstream(t, echo))
	// phase is odd while the toxic is in force; a call counts when it began and ended
	// in one phase.
	var phase, clean, delayed, calls atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			var kept net.Conn
			defer func() {
				if kept != nil {
					kept.Close()
				}
			}()
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				// Every second call tries the connection of the one before.
				began, start := phase.Load(), time.Now()
				if kept == nil {
					c, err := net.Dial("tcp", p.address)
					if err != nil {
						continue // refused while the toxics change
					}
					_ = c.SetDeadline(time.Now().Add(5 * time.Second))
					kept = c
				}
				_, err := roundTrip(kept, "x")
				took := time.Since(start)
				if err != nil || i%2 == 1 {
					kept.Close()
					kept = nil
				}
				if err != nil {
					continue
				}
				calls.Add(1)
				if took >= latency.Latency {
					delayed.Add(1)
				} else if began%2 == 1 && began == phase.Load() {
					clean.Add(1)
				}
			}
		})
	}
	for range 10 {
		set(t, p, latency)
		phase.Add(1)
		time.Sleep(100 * time.Millisecond)
		phase.Add(1)
		set(t, p)
		time.Sleep(10 * time.Millisecond)
	}
	close(stop)
	clients.Wait()
	t.Logf("%d calls, %d delayed", calls.Load(), delayed.Load())
	if clean.Load() > 0 || delayed.Load() == 0 || calls.Load() == delayed.Load() {
		t.Errorf("%d clean calls began after the toxic was in force (%d calls, %d delayed)", clean.Load(), calls.Load(), delayed.Load())
	}
}

func TestFaultEndsWithTheAgent(t *testing.T) {
	for name, toxic := range map[string]fault.Toxic{"latency": latency, "down": {Kind: fault.Down}} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, upstream(t, echo))
			set(t, p, toxic)
			p.lifeline.Close()
			eventually(t, 2*time.Second, func() error { return cleared(p) })
			// It goes on serving, for an agent that comes later.
			set(t, p, toxic)
			wantToxics(t, p, toxic.Normalize())
		})
	}
}

// The lifeline stays open, as with an agent that was stopped.
func TestFaultEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	p := startProxy(t, upstream(t, echo))
	e := New(Config{})
	const ttl = 400 * time.Millisecond
	start := time.Now()
	if err := e.Set(context.Background(), p.socket, []fault.Toxic{{Kind: fault.Down}}, start.Add(ttl)); err != nil {
		t.Fatal(err)
	}
	wantToxics(t, p, fault.Toxic{Kind: fault.Down})
	eventually(t, 5*time.Second, func() error { return cleared(p) })
	if took := time.Since(start); took < ttl {
		t.Errorf("cleared after %v, before the deadline at %v", took, ttl)
	}
	// The deadline of a fault that was replaced is void.
	if err := e.Set(context.Background(), p.socket, []fault.Toxic{latency}, time.Now().Add(ttl)); err != nil {
		t.Fatal(err)
	}
	set(t, p, latency)
	time.Sleep(ttl + 200*time.Millisecond)
	wantToxics(t, p, latency.Normalize())
}

// bulk sends for ever.
func bulk(c net.Conn) { new(flood).serve(c) }

// flood is bulk that knows how far it came.
type flood struct{ sent atomic.Int64 }

func (f *flood) serve(c net.Conn) {
	b := make([]byte, 64<<10)
	for {
		n, err := c.Write(b)
		f.sent.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// full waits until nothing more is taken: everything between here and the client waits for
// the client.
func (f *flood) full(tb testing.TB) {
	tb.Helper()
	before, since := int64(-1), time.Now()
	eventually(tb, 20*time.Second, func() error {
		if now := f.sent.Load(); now != before || now == 0 {
			before, since = now, time.Now()
		}
		if time.Since(since) < 300*time.Millisecond {
			return errors.New("the upstream still sends")
		}
		return nil
	})
}

// blocked makes what hangs a Toxiproxy: a latency toxic, and a client that does not
// read the bulk data coming its way, so that the whole chain waits for it.
func blocked(t *testing.T) (*process, *net.TCPConn) {
	var f flood
	p := startProxy(t, upstream(t, f.serve))
	set(t, p, latency)
	c := dial(t, p.address).(*net.TCPConn)
	_ = c.SetReadBuffer(4096)
	f.full(t)
	return p, c
}

func TestClearDoesNotHangOnBlockedTraffic(t *testing.T) {
	t.Parallel()
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("client killed %v", kill), func(t *testing.T) {
			p, c := blocked(t)
			if kill {
				_ = c.SetLinger(0)
				c.Close()
			}
			start := time.Now()
			set(t, p, fault.Toxic{Kind: fault.Timeout})
			set(t, p)
			if took := time.Since(start); took > 2*time.Second {
				t.Errorf("set and clear took %v", took)
			}
			wantToxics(t, p)
		})
	}
}

// What connections leave behind when they are cut with data inside does not add up
// over many faults.
func TestCutConnectionsDoNotPileUp(t *testing.T) {
	t.Parallel()
	p := startProxy(t, upstream(t, bulk))
	for range 2 {
		set(t, p, fault.Toxic{Kind: fault.Latency, Latency: 300 * time.Millisecond})
		var clients []net.Conn
		for range 30 {
			c := dial(t, p.address)
			_ = c.(*net.TCPConn).SetReadBuffer(4096)
			clients = append(clients, c)
		}
		time.Sleep(400 * time.Millisecond)
		set(t, p)
		for _, c := range clients {
			c.Close()
		}
	}
	// A restart leaves a fresh process, which has a few goroutines.
	o, err := newOrder([]fault.Toxic{{Kind: fault.Down}}, time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	var done outcome
	if err := New(Config{}).control(p.socket).call(context.Background(), "PUT", faultPath, o, &done); err != nil || done.Goroutines > maxLeaked {
		t.Errorf("%d goroutines, %v; want at most %d", done.Goroutines, err, maxLeaked)
	}
}

// The way that Toxiproxy offers hangs its whole API in that situation. The engine
// must notice, and Restart must bring the proxy back.
func TestStuckControl(t *testing.T) {
	t.Parallel()
	const limit = 500 * time.Millisecond
	stick := func(t *testing.T) *process {
		p, _ := blocked(t)
		c := control{socket: p.socket, limit: limit}
		if err := c.call(context.Background(), "DELETE", "/proxies/pg/toxics/netemd-fault-latency_downstream", nil, nil); !errors.Is(err, ErrStuck) {
			t.Fatalf("delete of the toxic: %v; the situation cannot be made any more", err)
		}
		return p
	}
	t.Run("restart", func(t *testing.T) {
		t.Parallel()
		p := stick(t)
		e := New(Config{Limit: limit, Restart: Restart})
		err := e.Set(context.Background(), p.socket, []fault.Toxic{latency}, time.Now().Add(time.Minute))
		stuck, ok := errors.AsType[*StuckError](err)
		if !ok || !stuck.Recovered || !errors.Is(err, ErrStuck) {
			t.Fatalf("%v; want stuck and recovered", err)
		}
		wantToxics(t, p)
		set(t, p, latency)
		wantToxics(t, p, latency.Normalize())
	})
	t.Run("no restart", func(t *testing.T) {
		t.Parallel()
		p := stick(t)
		start := time.Now()
		err := New(Config{Limit: limit}).Clear(context.Background(), p.socket)
		if stuck, ok := errors.AsType[*StuckError](err); !ok || stuck.Recovered || time.Since(start) > 4*limit {
			t.Fatalf("%v after %v; want stuck at %v", err, time.Since(start), limit)
		}
	})
	t.Run("restart fails", func(t *testing.T) {
		t.Parallel()
		p := stick(t)
		no := errors.New("no")
		e := New(Config{Limit: limit, Restart: func(context.Context, string) error { return no }})
		if err := e.Clear(context.Background(), p.socket); !errors.Is(err, ErrStuck) || !errors.Is(err, no) {
			t.Fatalf("%v; want stuck, and why the restart failed", err)
		}
	})
	t.Run("caller's limit", func(t *testing.T) {
		t.Parallel()
		p := stick(t)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		if _, err := New(Config{}).Read(ctx, p.socket); errors.Is(err, ErrStuck) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v; want the caller's deadline", err)
		}
	})
}

// A stuck control must not make the child miss the deadline or the agent's end.
func TestStuckControlFailsOpen(t *testing.T) {
	t.Parallel()
	p, _ := blocked(t)
	c := control{socket: p.socket, limit: 500 * time.Millisecond}
	if err := c.call(context.Background(), "DELETE", "/proxies/pg/toxics/netemd-fault-latency_downstream", nil, nil); !errors.Is(err, ErrStuck) {
		t.Fatal(err)
	}
	p.lifeline.Close()
	eventually(t, DefaultLimit+5*time.Second, func() error {
		_, err := New(Config{Limit: time.Second}).Read(context.Background(), p.socket)
		return err
	})
	wantToxics(t, p)
}

func TestRestartKeepsTheProcess(t *testing.T) {
	p := startProxy(t, upstream(t, echo))
	set(t, p, fault.Toxic{Kind: fault.Down})
	if err := Restart(context.Background(), p.socket); err != nil {
		t.Fatal(err)
	}
	if err := cleared(p); err != nil {
		t.Error(err)
	}
	if err := p.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("process %d: %v", p.cmd.Process.Pid, err)
	}
}

func TestNoProxy(t *testing.T) {
	e, nowhere := New(Config{Restart: Restart}), filepath.Join(t.TempDir(), "api")
	if _, err := e.Read(context.Background(), nowhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read: %v; want not exist", err)
	}
	if err := e.Set(context.Background(), nowhere, []fault.Toxic{latency}, time.Now().Add(time.Hour)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("set: %v; want not exist", err)
	}
}

func TestReadBackDiffers(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "api")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	puts := 0
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "PUT" {
			puts++
			_, _ = io.Copy(io.Discard, r.Body)
		}
		_, _ = io.WriteString(w, `{"name": "pg", "enabled": true, "toxics": []}`)
	})}
	defer server.Close()
	go func() { _ = server.Serve(l) }()
	err = New(Config{}).Set(context.Background(), socket, []fault.Toxic{latency}, time.Now().Add(time.Hour))
	if err == nil || puts != 2 {
		t.Errorf("%v after %d orders; want an error and a second order that clears", err, puts)
	}
}

func TestSocketIsForItsOwner(t *testing.T) {
	p := startProxy(t, upstream(t, echo))
	info, err := os.Lstat(p.socket)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v; want a socket with mode 0600", info.Mode(), err)
	}
}
