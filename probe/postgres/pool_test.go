package postgres

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"netemd/probe"
	"netemd/probe/tcp"
)

func on(t *testing.T, p *Probe, budget time.Duration) (probe.Sample, time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	at := time.Now()
	s := p.Call(ctx, 0)
	return s, time.Since(at)
}

// TestModes: the parts and turns of a first call, and of one that finds a connection. The
// stub's login is one turn.
func TestModes(t *testing.T) {
	for _, test := range []struct {
		mode          string
		pool          int
		first, second string
		turns, again  int
	}{
		{Call, 0, "connect auth prepare query", "", 3, 3},
		{Connect, 0, "connect auth", "", 1, 1},
		{Query, 0, "connect auth query", "", 2, 2},
		{Prepared, 0, "connect auth prepare query", "", 3, 3},
		{Transaction, 0, "connect auth begin query commit", "", 4, 4},
		{Query, 1, "pool connect auth query", "pool query", 2, 1},
		{Prepared, 1, "pool connect auth prepare query", "pool query", 3, 1},
		{Transaction, 1, "pool connect auth begin query commit", "pool begin query commit", 4, 3},
	} {
		t.Run(test.mode+strings.Repeat(" of a pool", test.pool), func(t *testing.T) {
			srv := serveStub(t, nil)
			p := &Probe{Address: srv.addr, User: "u", Mode: test.mode, Pool: test.pool}
			defer func() { _ = p.Close() }()
			for i, want := range []string{test.first, test.second} {
				turns := test.turns
				if i == 1 {
					turns = test.again
				}
				if want == "" {
					want = test.first
				}
				s, _ := on(t, p, 10*time.Second)
				var names []string
				sum, answers := int64(0), 0
				for _, ph := range s.Phases {
					names, sum, answers = append(names, ph.Name), sum+ph.NS, answers+ph.Turns
				}
				if s.Class != probe.OK || strings.Join(names, " ") != want || s.Turns != turns || answers != turns || sum > s.EndNS-s.StartNS {
					t.Errorf("call %d: %+v, want %s, %d turns", i, s, want, turns)
				}
				if again := i == 1 && test.pool > 0; s.Reused != again || (s.ConnectNS == 0) != again {
					t.Errorf("call %d: reused %v, connect %d", i, s.Reused, s.ConnectNS)
				}
			}
		})
	}
}

// TestKilledConnections: the server is killed under a pool's connections. Each costs one
// query, at once, and the next one has a new connection (no waiting for a clean-up of 15 s).
func TestKilledConnections(t *testing.T) {
	for _, size := range []int{1, 3} {
		srv := serveStub(t, nil)
		p := &Probe{Address: srv.addr, User: "u", Mode: Prepared, Pool: size}
		var wg sync.WaitGroup
		round := func() (ok, failed int) {
			var mu sync.Mutex
			gate := make(chan struct{})
			for range size {
				wg.Go(func() {
					<-gate
					s, d := on(t, p, 5*time.Second)
					mu.Lock()
					defer mu.Unlock()
					switch s.Class {
					case probe.OK:
						ok++
					case probe.EOF, probe.Reset:
						failed++
					default:
						t.Errorf("%+v", s)
					}
					if d > 3*time.Second {
						t.Errorf("a call took %v", d)
					}
				})
			}
			close(gate)
			wg.Wait()
			return ok, failed
		}
		for range 10 {
			round()
		}
		made := int(srv.connections.Load())
		if made > size {
			t.Fatalf("%d connections of a pool of %d", made, size)
		}
		srv.kill()
		failures := 0
		for range 5 {
			_, f := round()
			failures += f
		}
		if failures > made || failures == 0 {
			t.Errorf("%d queries failed for %d broken connections", failures, made)
		}
		if ok, _ := round(); ok != size {
			t.Errorf("%d of %d calls after it are well", ok, size)
		}
		_ = p.Close()
	}
}

// relay passes connections to a server. While it is cut, it takes connections but passes
// nothing, and what was made before stays dead: as behind a firewall that forgot it.
type relay struct {
	addr netip.AddrPort
	cut  atomic.Bool
}

func serveRelay(t *testing.T, to netip.AddrPort) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		r  = &relay{addr: l.Addr().(*net.TCPAddr).AddrPort()}
		wg sync.WaitGroup
		mu sync.Mutex
		up []net.Conn
	)
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to.String())
			if err != nil {
				_ = c.Close()
				continue
			}
			mu.Lock()
			up = append(up, c, far)
			mu.Unlock()
			var dead atomic.Bool
			pass := func(to, from net.Conn) {
				b := make([]byte, 4096)
				for {
					n, err := from.Read(b)
					if err != nil {
						_ = to.Close()
						return
					}
					if r.cut.Load() {
						dead.Store(true)
					}
					if !dead.Load() {
						_, _ = to.Write(b[:n])
					}
				}
			}
			wg.Go(func() { pass(far, c) })
			wg.Go(func() { pass(c, far) })
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
	return r
}

// TestPartition: how long a client needs after a partition is told in two numbers, that of
// the network (by a TCP probe) and that of the first query, and the pool adds nothing to
// the network's but the calls that were under way.
func TestPartition(t *testing.T) {
	srv := serveStub(t, nil)
	r := serveRelay(t, srv.addr)
	pg := &Probe{Address: r.addr, User: "u", Mode: Query, Pool: 1}
	defer func() { _ = pg.Close() }()
	const budget = 300 * time.Millisecond
	if s, _ := on(t, pg, 10*time.Second); s.Class != probe.OK {
		t.Fatalf("%+v", s)
	}
	r.cut.Store(true)
	for i := range 3 {
		if s, _ := on(t, pg, budget); s.Class != probe.Timeout || s.Reused != (i == 0) {
			t.Errorf("call %d of the partition: %+v", i, s)
		}
	}
	r.cut.Store(false)
	healed := time.Now()
	wire := &tcp.Probe{Address: r.addr}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if s := wire.Call(ctx, 0); s.Class != probe.OK {
		t.Errorf("the network: %+v", s)
	}
	network := time.Since(healed)
	s, _ := on(t, pg, 10*time.Second)
	if query := time.Since(healed); s.Class != probe.OK || s.Reused || query > 5*time.Second {
		t.Errorf("the network was back after %v, the first query after %v: %+v", network, query, s)
	}
}

// TestPlaces: calls beyond the pool wait within their budget, and say so.
func TestPlaces(t *testing.T) {
	srv := serveStub(t, func(*net.TCPConn) {})
	p := &Probe{Address: srv.addr, User: "u", Mode: Prepared, Pool: 1}
	defer func() { _ = p.Close() }()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { on(t, p, 2*time.Second) })
	for i := 0; srv.syncs.Load() == 0 && i < 1000; i++ {
		time.Sleep(5 * time.Millisecond)
	}
	s, _ := on(t, p, 100*time.Millisecond)
	if s.Class != probe.Timeout || len(s.Phases) != 1 || s.Phases[0].Name != probe.PhasePool || s.Phases[0].NS < int64(90*time.Millisecond) {
		t.Errorf("%+v, want a timeout in the pool", s)
	}
}

// TestRefusals: what the server refuses does not cost the connection, unless it is left
// within a transaction.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		query string
		want  probe.Class
		kept  bool
	}{{"wrong", probe.Server, true}, {"wrong in a transaction", probe.Server, false}, {"two rows", probe.Other, false}, {"commit", probe.Other, false}} {
		srv := serveStub(t, nil)
		p := &Probe{Address: srv.addr, User: "u", Mode: Query, Pool: 1, Query: test.query}
		for i := range 2 {
			if s, _ := on(t, p, 10*time.Second); s.Class != test.want || s.Reused != (test.kept && i > 0) {
				t.Errorf("%s: %+v", test.query, s)
			}
		}
		_ = p.Close()
	}
}

// TestClosed: a closed pool leaves nothing, also of connections that hang.
func TestClosed(t *testing.T) {
	here := goleak.IgnoreCurrent()
	files := descriptors(t)
	srv := serveStub(t, nil)
	p := &Probe{Address: srv.addr, User: "u", Mode: Query, Pool: 3}
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { on(t, p, 10*time.Second) })
	}
	wg.Wait()
	at := time.Now()
	if err := p.Close(); err != nil || time.Since(at) > 3*time.Second {
		t.Errorf("%v after %v", err, time.Since(at))
	}
	if s, _ := on(t, p, time.Second); s.Class != probe.Other || len(p.pool.places) != 0 {
		t.Errorf("after Close: %+v, %d places are taken", s, len(p.pool.places))
	}
	for i := 0; descriptors(t) > files+1 && i < 300; i++ { // the stub has its listener, and closes its ends soon
		time.Sleep(10 * time.Millisecond)
	}
	if n := descriptors(t); n > files+1 {
		t.Errorf("%d descriptors are open, before there were %d", n, files)
	}
	if err := goleak.Find(here, goleak.IgnoreAnyFunction("netemd/probe/postgres.serveStub.func2")); err != nil {
		t.Error(err)
	}
}
