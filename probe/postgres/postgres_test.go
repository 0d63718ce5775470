package postgres

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"go.uber.org/goleak"

	"netemd/probe"
)

// stub is a PostgreSQL server as far as a probe can tell, without authentication.
type stub struct {
	addr netip.AddrPort
	// connections and syncs count what came: a sync ends what a client asks for at
	// once.
	connections, syncs atomic.Int32

	mu      sync.Mutex
	open    []*net.TCPConn
	startup map[string]string // what the last connection asked for
}

// kill closes all connections under their clients.
func (s *stub) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.open {
		_ = c.Close()
	}
	s.open = nil
}

// misbehave is what a stub does instead of answering a sync; nil answers.
type misbehave func(c *net.TCPConn)

func serveStub(t *testing.T, m misbehave) *stub {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := &stub{addr: l.Addr().(*net.TCPAddr).AddrPort()}
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		_ = l.Close()
	})
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			s.connections.Add(1)
			s.mu.Lock()
			s.open = append(s.open, c)
			s.mu.Unlock()
			go func() {
				defer c.Close()
				s.talk(c, m)
				if m != nil {
					<-stop // a hung server keeps its connections
				}
			}()
		}
	}()
	return s
}

func (s *stub) talk(c *net.TCPConn, m misbehave) {
	b := pgproto3.NewBackend(c, c)
	first, err := b.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if m, ok := first.(*pgproto3.StartupMessage); ok {
		s.mu.Lock()
		s.startup = m.Parameters
		s.mu.Unlock()
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if b.Flush() != nil {
		return
	}
	row := &pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("?column?"), DataTypeOID: 23, DataTypeSize: 4, TypeModifier: -1}}}
	for {
		msg, err := b.Receive()
		if err != nil {
			return
		}
		switch msg := msg.(type) {
		case *pgproto3.Parse:
			b.Send(&pgproto3.ParseComplete{})
		case *pgproto3.Describe:
			b.Send(&pgproto3.ParameterDescription{})
			b.Send(row)
		case *pgproto3.Bind:
			b.Send(&pgproto3.BindComplete{})
		case *pgproto3.Execute:
			b.Send(&pgproto3.DataRow{Values: [][]byte{{0, 0, 0, 1}}})
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		case *pgproto3.Sync:
			s.syncs.Add(1)
			if m != nil {
				m(c)
				return
			}
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			if b.Flush() != nil {
				return
			}
		case *pgproto3.Query:
			s.syncs.Add(1)
			s.simple(b, msg.String)
			if b.Flush() != nil {
				return
			}
		case *pgproto3.Terminate:
			return
		}
	}
}

// simple answers a simple query, with the state of the transaction.
func (s *stub) simple(b *pgproto3.Backend, query string) {
	status, tag := byte('I'), "SELECT 1"
	switch query {
	case "begin":
		status, tag = 'T', "BEGIN"
	case "commit":
		tag = "COMMIT"
	case "wrong":
		b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "42P01", Message: "no such thing"})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		return
	case "wrong in a transaction":
		b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "42P01", Message: "no such thing"})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'E'})
		return
	default:
		b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("?column?"), DataTypeOID: 23, DataTypeSize: 4, TypeModifier: -1}}})
		b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("1")}})
		if query == "two rows" {
			b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("1")}})
		}
		if row, rows := long(query); rows > 0 {
			for range rows {
				b.Send(&pgproto3.DataRow{Values: [][]byte{row}})
				if b.Flush() != nil {
					return
				}
			}
		}
	}
	b.Send(&pgproto3.CommandComplete{CommandTag: []byte(tag)})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: status})
}

func call(t *testing.T, addr netip.AddrPort, budget time.Duration) (probe.Sample, time.Duration) {
	t.Helper()
	p := &Probe{Address: addr, User: "u", Password: "p w", Database: "d"}
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	at := time.Now()
	s := p.Call(ctx, 3)
	return s, time.Since(at)
}

func TestPostgresCall(t *testing.T) {
	srv := serveStub(t, nil)
	before := probe.Now()
	s, _ := call(t, srv.addr, 10*time.Second)
	if s.Class != probe.OK || s.Error != "" || s.Seq != 3 {
		t.Fatalf("sample %+v, want ok", s)
	}
	if s.Remote != srv.addr || !s.Local.IsValid() || s.Local.Port() == 0 {
		t.Errorf("ends %v and %v, want the server to be %v", s.Local, s.Remote, srv.addr)
	}
	if s.StartNS < before || s.EndNS > probe.Now() || s.ConnectNS <= 0 || s.ConnectNS >= s.EndNS-s.StartNS {
		t.Errorf("times %d..%d, connect %d, not within the test", s.StartNS, s.EndNS, s.ConnectNS)
	}
	if runtime.GOOS == "linux" && (s.Info == nil || s.Info.RTTNS <= 0 || s.Info.RTONS < 200*int64(time.Millisecond)) {
		t.Errorf("TCP_INFO %+v, want a round trip and a timeout of at least 200 ms", s.Info)
	}
	// prepare and execute: an answer each, after the start-up's
	if c, y := srv.connections.Load(), srv.syncs.Load(); c != 1 || y != 2 {
		t.Errorf("%d connections and %d syncs, want 1 and 2", c, y)
	}
}

func TestPostgresClasses(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	send := func(b []byte) misbehave {
		return func(c *net.TCPConn) {
			_, _ = c.Write(b)
			_ = c.CloseWrite()
		}
	}
	refusal, err := (&pgproto3.ErrorResponse{Severity: "ERROR", Code: "42P01", Message: "no such thing"}).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	refusal, err = (&pgproto3.ReadyForQuery{TxStatus: 'I'}).Encode(refusal)
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		m    misbehave
		want probe.Class
	}{
		{"nobody listens", nil, probe.Refused},
		{"reset", func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() }, probe.Reset},
		{"closed", send(nil), probe.EOF},
		{"closed within a message", send([]byte{'T', 0, 0, 1, 0, 'x'}), probe.EOF},
		{"not PostgreSQL", send([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")), probe.Protocol},
		{"unknown message", send([]byte{'?', 0, 0, 0, 4}), probe.Protocol},
		{"error", send(refusal), probe.Server},
		{"silence", func(*net.TCPConn) {}, probe.Timeout},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			addr := closed.Addr().(*net.TCPAddr).AddrPort()
			if test.m != nil {
				addr = serveStub(t, test.m).addr
			}
			s, _ := call(t, addr, 300*time.Millisecond)
			if s.Class != test.want || s.Error == "" {
				t.Errorf("class %q, error %q; want %q", s.Class, s.Error, test.want)
			}
			if s.Remote != addr {
				t.Errorf("remote %v, want %v", s.Remote, addr)
			}
		})
	}
}

// TestHungServer: a server that answers the start-up, then neither reads nor
// writes, holds a call no longer than its budget, and leaves nothing behind.
func TestHungServer(t *testing.T) {
	srv := serveStub(t, func(*net.TCPConn) {})
	here := goleak.IgnoreCurrent()
	files := descriptors(t)
	var (
		s probe.Sample
		d time.Duration
	)
	for try := 0; try == 0 || d > 700*time.Millisecond && try < 5; try++ { // the machine may stop for a moment
		srv.connections.Store(0)
		srv.kill()
		s, d = call(t, srv.addr, 500*time.Millisecond)
	}
	if s.Class != probe.Timeout {
		t.Errorf("class %q (%s), want timeout", s.Class, s.Error)
	}
	// A read may give up while the last of its budget is under way.
	if d < 490*time.Millisecond || d > 700*time.Millisecond {
		t.Errorf("the call took %v, want 490..700 ms", d)
	}
	if c := srv.connections.Load(); c != 1 {
		t.Errorf("%d connections, want 1: the cancel request is one too many", c)
	}
	// the stub's side of the connection is its own goroutine and descriptor
	if n := descriptors(t); n > files+1 {
		t.Errorf("%d descriptors are open, before there were %d", n, files)
	}
	if err := goleak.Find(here, goleak.IgnoreAnyFunction("netemd/probe/postgres.serveStub.func2.1")); err != nil {
		t.Error(err)
	}
}

// TestFullBacklog: a handshake that is never answered ends with the budget; the
// kernel's account and the local end are known all the same.
func TestFullBacklog(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("a full backlog drops SYNs on Linux")
	}
	addr := blackHole(t)
	files := descriptors(t)
	s, d := call(t, addr, 1500*time.Millisecond)
	for try := 0; d > 1700*time.Millisecond && try < 5; try++ { // the machine may stop for a moment
		s, d = call(t, addr, 1500*time.Millisecond)
	}
	if s.Class != probe.Timeout || s.ConnectNS != 0 {
		t.Fatalf("sample %+v, want a timeout while connecting", s)
	}
	if d < 1500*time.Millisecond || d > 1700*time.Millisecond {
		t.Errorf("the call took %v, want 1.5..1.7 s", d)
	}
	if !s.Local.IsValid() || s.Local.Port() == 0 {
		t.Errorf("local end %v, want an address and a port", s.Local)
	}
	if s.Info == nil || s.Info.TotalRetransmits < 1 {
		t.Errorf("TCP_INFO %+v, want a SYN sent again", s.Info)
	}
	list := []probe.Sample{s}
	if probe.Attribute(list, nil, probe.Attribution{}); list[0].Cause != probe.SYNRetransmit {
		t.Errorf("cause %q, want %q", list[0].Cause, probe.SYNRetransmit)
	}
	if n := descriptors(t); n != files {
		t.Errorf("%d descriptors are open, before there were %d", n, files)
	}
}

// descriptors counts this process's open files; 0 where there is no /proc.
func descriptors(t *testing.T) int {
	t.Helper()
	l, err := os.ReadDir("/proc/self/fd")
	if err != nil && runtime.GOOS == "linux" {
		t.Fatal(err)
	}
	return len(l)
}
