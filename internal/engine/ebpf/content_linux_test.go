package ebpf

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/lease"
	"netemd/internal/target"
	"netemd/namespaces"
)

var _ lease.ContentEngine = (*Engine)(nil)

// service is a TCP server in the lab's server namespace that reads what comes.
type service struct {
	l  *lab
	ln *net.TCPListener

	mu    sync.Mutex
	peers []*net.TCPConn
	came  chan *net.TCPConn
}

func (l *lab) serve(t testing.TB, server string) *service {
	t.Helper()
	s := &service{l: l, came: make(chan *net.TCPConn, 1024)}
	l.in(t, l.server, func() (err error) {
		s.ln, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(server)})
		return err
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := s.ln.AcceptTCP()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.peers = append(s.peers, c)
			s.mu.Unlock()
			s.came <- c
		}
	}()
	t.Cleanup(func() {
		s.ln.Close()
		<-done
		for _, c := range s.peers {
			c.Close()
		}
	})
	return s
}

// tcp selects the client's packets to the service.
func (s *service) tcp() target.Match {
	return target.Match{Include: []target.Flow{{Protocol: 6, DestinationPorts: target.Port(uint16(s.ln.Addr().(*net.TCPAddr).Port))}}}
}

// dial opens a connection and says how long that took.
func (s *service) dial(t testing.TB) (*net.TCPConn, time.Duration) {
	t.Helper()
	c, took, err := s.try()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, took
}

func (s *service) try() (c *net.TCPConn, took time.Duration, err error) {
	err = namespaces.Do(ctx, s.l.client, func() error {
		start := time.Now()
		d := net.Dialer{Timeout: 20 * time.Second}
		conn, err := d.Dial("tcp", s.ln.Addr().String())
		took = time.Since(start)
		if err == nil {
			c = conn.(*net.TCPConn)
			return c.SetNoDelay(true)
		}
		return err
	})
	return c, took, err
}

// accepted is the server's end of a connection.
func (s *service) accepted(t testing.TB, c *net.TCPConn) *net.TCPConn {
	t.Helper()
	for {
		select {
		case p := <-s.came:
			if p.RemoteAddr().String() == c.LocalAddr().String() {
				return p
			}
		case <-time.After(slower(5 * time.Second)):
			t.Fatal("the connection was not accepted")
		}
	}
}

// segments sends n small segments one by one, each after the peer has the one before.
func segments(t testing.TB, c, peer *net.TCPConn, n int) {
	t.Helper()
	b := make([]byte, 4)
	for i := range n {
		if _, err := c.Write(fmt.Appendf(nil, "%04d", i)); err != nil {
			t.Fatal(err)
		}
		_ = peer.SetReadDeadline(time.Now().Add(slower(10 * time.Second)))
		if _, err := io.ReadFull(peer, b); err != nil || string(b) != fmt.Sprintf("%04d", i) {
			t.Fatalf("segment %d: read %q, %v", i, b, err)
		}
	}
}

// retransmissions are those of a connection since it began.
func retransmissions(t testing.TB, c *net.TCPConn) uint32 {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n uint32
	_ = raw.Control(func(fd uintptr) {
		info, ierr := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
		if err = ierr; err == nil {
			n = info.Total_retrans
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func rule(t testing.TB, e *Engine, p target.Place, r content.Rule) {
	t.Helper()
	if err := e.SetContent(ctx, p, r, in(time.Minute)); err != nil {
		t.Fatal(err)
	}
}

func ruleCounters(t testing.TB, e *Engine, p target.Place, r content.Rule) fault.Counters {
	t.Helper()
	st, inForce, err := e.ReadContent(ctx, p, r)
	if err != nil || !inForce {
		t.Fatalf("read %s: in force: %t, %v", r, inForce, err)
	}
	return st.Counters
}

func ruleLogOf(t testing.TB, e *Engine, p target.Place, r content.Rule) content.Log {
	t.Helper()
	l, err := e.ContentLog(ctx, p, r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func clearRule(t testing.TB, e *Engine, p target.Place, r content.Rule) {
	t.Helper()
	if err := e.ClearContent(ctx, p, r); err != nil {
		t.Fatal(err)
	}
}

// often is how often a thing is shown: 5 times, 50 in the long run.
func often() int {
	switch {
	case os.Getenv("NETEMD_TEST_LONG") != "":
		return 50
	case testing.Short():
		return 2
	}
	return 5
}

// The first SYN of each connection is dropped, so that the connect takes the initial
// retransmission timeout of 1 s (RFC 6298).
func TestDropSYN(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		var wg sync.WaitGroup
		for _, server := range []string{server4, server6} {
			s := l.serve(t, server)
			p := l.place
			p.Match = s.tcp()
			r := content.Rule{Kind: content.SYN, Count: 1, PerConnection: true}
			rule(t, e, p, r)
			n := often()
			took, conns, errs := make([]time.Duration, n), make([]*net.TCPConn, n), make([]error, n)
			connect := func() {
				for i := range n {
					wg.Go(func() { conns[i], took[i], errs[i] = s.try() })
				}
			}
			connect()
			defer func() { // all families connect at the same time
				undisturbed(t, func() string {
					wg.Wait()
					for _, c := range conns {
						if c != nil {
							defer c.Close()
						}
					}
					if err := errors.Join(errs...); err != nil {
						t.Fatal(err)
					}
					if said := waited(ruleCounters(t, e, p, r)); said != "" {
						clearRule(t, e, p, r)
						rule(t, e, p, r)
						connect()
						return said
					}
					judgeSYN(t, e, p, r, took, conns)
					return ""
				})
				clearRule(t, e, p, r)
				if _, took := s.dial(t); took > 900*ms {
					t.Errorf("after the end a connect took %s", took)
				}
				if log := ruleLogOf(t, e, p, r); log.Chosen != uint64(n) || len(log.Records) != n {
					t.Errorf("after the end: %+v", log)
				}
				if e.places[contentKey(p, r)] != nil {
					t.Error("the place is left")
				}
			}()
		}
		wg.Wait()
	})
}

// judgeSYN looks at connects of which each lost its first SYN.
func judgeSYN(t *testing.T, e *Engine, p target.Place, r content.Rule, took []time.Duration, conns []*net.TCPConn) {
	t.Helper()
	n := len(took)
	for i := range n {
		// A second loss would make 2 s or more of it.
		if took[i] < time.Second || took[i] > 1900*ms {
			t.Errorf("connect took %s, want 1.0 to 1.1s", took[i])
		}
	}
	sorted := slices.Sorted(slices.Values(took))
	slow := n - sort.Search(n, func(i int) bool { return sorted[i] > 1100*ms })
	t.Logf("%d connects took %s to %s, median %s, %d more than 1.1s", n, sorted[0], sorted[n-1], sorted[n/2], slow)
	if c := ruleCounters(t, e, p, r); c.Lost != uint64(n) {
		t.Errorf("%+v, want %d lost", c, n)
	}
	sources := map[string]bool{}
	got := ruleLogOf(t, e, p, r)
	for _, rec := range got.Records {
		sources[rec.Source] = true
		if rec.Flags != 2 || rec.Payload != 0 || rec.Segments != 1 || rec.Protocol != 6 || rec.Destination != conns[0].RemoteAddr().String() {
			t.Errorf("%+v", rec)
		}
		if age := time.Since(rec.Wall); age < time.Second || age > time.Minute || now()-rec.Time < int64(time.Second) {
			t.Errorf("dropped %s ago", age)
		}
	}
	if got.Chosen != uint64(n) || got.Missed != 0 || len(sources) != n {
		t.Errorf("chosen %d, missed %d, of %d connections", got.Chosen, got.Missed, len(sources))
	}
	for _, c := range conns {
		if !sources[c.LocalAddr().String()] {
			t.Errorf("no record of %s in %v", c.LocalAddr(), sources)
		}
	}
}
