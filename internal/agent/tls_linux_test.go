package agent

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"netemd/internal/access"
	"netemd/internal/client"
	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/testenv/testca"
	"netemd/internal/wire"
)

// tcp is an agent on TCP whose files are the CA's, and its address.
func tcp(t *testing.T, ca *testca.CA, change func(*Config)) (*Agent, *client.Client, string) {
	t.Helper()
	server := ca.Server(t, "127.0.0.1")
	cfg := Config{Settings: settings(func(s *config.Config) {
		s.TCP = config.TCP{Listen: "127.0.0.1:0", Certificate: server.Certificate, Key: server.Key, ClientCA: ca.File}
	})}
	change(&cfg)
	a, local := serveWith(t, cfg)
	return a, local, a.listeners[1].Addr().String()
}

// open connects as the client of a pair that ca signed.
func open(t testing.TB, ca *testca.CA, address string, p testca.Pair) (*client.Client, error) {
	t.Helper()
	opened, err := client.Open(client.Endpoint{Address: address, Certificate: p.Certificate, Key: p.Key, CA: ca.File})
	if err == nil {
		t.Cleanup(func() { _ = opened.Close() })
	}
	return opened, err
}

// raw makes a TLS connection and asks for one byte, since TLS 1.3 tells a client only then
// that it was refused.
func raw(address string, cfg *tls.Config) error {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, err = conn.Read(make([]byte, 1))
	return err
}

func TestTCP(t *testing.T) {
	authority, foreign := testca.New(t), testca.New(t)
	log := &logged{}
	agent, local, address := tcp(t, authority, func(c *Config) {
		c.Log = log.logger()
		c.Settings.Allow = []access.Rule{{Certificates: []string{"ci", "spiffe://x/ci"}, Verbs: []access.Verb{access.All}, Targets: []string{"*"}}}
	})
	pool := authority.Pool()
	of := func(p testca.Pair) []tls.Certificate { return []tls.Certificate{p.Load(t)} }
	good := authority.Client(t, "ci")
	for name, tt := range map[string]struct {
		cfg  *tls.Config
		want string
	}{
		"no certificate":           {&tls.Config{RootCAs: pool}, "certificate required"},
		"another CA's certificate": {&tls.Config{RootCAs: pool, Certificates: of(foreign.Client(t, "ci"))}, "unknown certificate authority"},
		"TLS 1.2":                  {&tls.Config{RootCAs: pool, Certificates: of(good), MaxVersion: tls.VersionTLS12}, "protocol version"},
		"a server's certificate":   {&tls.Config{RootCAs: pool, Certificates: of(authority.Server(t, "127.0.0.1"))}, "bad certificate"},
		"a nameless certificate":   {&tls.Config{RootCAs: pool, Certificates: of(authority.Client(t, "")), NextProtos: []string{"h2"}}, "EOF"},
	} {
		if err := raw(address, tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if !says(log.String(), "a client was refused", "127.0.0.1:", "neither a subject common name nor a URI") {
		t.Errorf("the log:\n%s", log)
	}

	c, err := open(t, authority, address, good)
	if err != nil {
		t.Fatal(err)
	}
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	f := apply(t, c, held(a))
	if f.Spec.Owner != "certificate CN ci" {
		t.Errorf("owner %q", f.Spec.Owner)
	}
	byURI, err := open(t, authority, address, authority.Client(t, "someone", "spiffe://x/ci"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := byURI.Clear(t.Context(), fault.Selector{ID: f.ID}); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("another certificate clears it: %v", err)
	}
	other, err := open(t, authority, address, authority.Client(t, "other"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.List(t.Context()); !errors.Is(err, fault.ErrDenied) || !strings.Contains(err.Error(), "certificate CN other may not list") {
		t.Errorf("a certificate without a rule: %v", err)
	}
	if got, err := c.Clear(t.Context(), fault.Selector{All: true}); err != nil || len(got) != 1 {
		t.Errorf("its owner clears all: %+v, %v", got, err)
	}
	posing, err := open(t, authority, address, authority.Client(t, "spiffe://x/ci", "spiffe://x/intern"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := posing.List(t.Context()); !errors.Is(err, fault.ErrDenied) || !strings.Contains(err.Error(), "certificate CN spiffe://x/ci may not list") {
		t.Errorf("a certificate whose common name is another's URI: %v", err)
	}
	_ = posing.Close()
	if _, err := local.List(t.Context()); err != nil {
		t.Errorf("over the unix socket: %v", err)
	}
	eventually(t, "the last one is gone", func() bool { return len(agent.controls()) == 3 })

	// Its connections are protected, as long as they stand.
	has := func() bool {
		return slices.ContainsFunc(agent.tls.connections(), func(c Connection) bool { return c.Local == netip.MustParseAddrPort(address) })
	}
	if !has() || len(agent.controls()) != 3 {
		t.Errorf("connections %v, want three from %s", agent.controls(), address)
	}
	for _, c := range []*client.Client{c, byURI, other} {
		_ = c.Close()
	}
	eventually(t, "no connection is left", func() bool { return len(agent.controls()) == 0 })
}

// Whom no rule knows takes only a few connections, with a certificate of the CA, too.
func TestStrangersOverTCP(t *testing.T) {
	authority := testca.New(t)
	log := &logged{}
	agent, _, address := tcp(t, authority, func(c *Config) {
		c.Log = log.logger()
		c.Settings.Allow = []access.Rule{{Certificates: []string{"ci"}, Verbs: []access.Verb{access.List}}}
	})
	cfg := &tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{authority.Client(t, "other").Load(t)}, NextProtos: []string{"h2"}}
	for i := range maxOfStranger {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := conn.Read(make([]byte, 1)); err != nil { // the settings of HTTP/2
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if err := raw(address, cfg); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("one more: %v, want its end", err)
	}
	if !says(log.String(), "a client was refused", "certificate CN other, who may do nothing here, and has 4 connections") {
		t.Errorf("the log:\n%s", log)
	}
	eventually(t, "only those that were let in count", func() bool { return len(agent.controls()) == maxOfStranger })
	c, err := open(t, authority, address, authority.Client(t, "ci"))
	if err == nil {
		_, err = c.List(t.Context())
	}
	if err != nil {
		t.Errorf("a certificate with a rule: %v", err)
	}
}

// More TCP connections than may be open wait for one to end.
func TestMostTCPConnections(t *testing.T) {
	l, err := listenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	accepted := make(chan net.Conn, maxTCP+1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range maxTCP + 1 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	eventually(t, "all that may be are open", func() bool { return len(accepted) == maxTCP })
	time.Sleep(100 * time.Millisecond)
	if n := len(accepted); n != maxTCP {
		t.Fatalf("%d are open, want %d", n, maxTCP)
	}
	_ = (<-accepted).Close()
	eventually(t, "the next is open after one ended", func() bool { return len(accepted) == maxTCP })
}

// A certificate, a key and a CA that changed are in force for the next connection, and what
// is broken is not.
func TestReload(t *testing.T) {
	first := testca.New(t)
	log := &logged{}
	agent, _, address := tcp(t, first, func(c *Config) {
		c.Log = log.logger()
		c.Settings.Allow = []access.Rule{{Certificates: []string{"*"}, Verbs: []access.Verb{access.List}}}
	})
	list := func(ca *testca.CA, p testca.Pair) error {
		conn, err := open(t, ca, address, p)
		if err == nil {
			_, err = conn.List(t.Context())
		}
		return err
	}
	files, old := agent.cfg.Settings.TCP, first.Client(t, "ci")
	if err := list(first, old); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(files.Certificate, []byte("-----BEGIN CERT"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := list(first, old); err != nil {
			t.Errorf("with a broken certificate file: %v", err)
		}
	}
	if n := strings.Count(log.String(), "those from before stay in force"); n != 1 {
		t.Errorf("the broken file is said %d times, want once:\n%s", n, log)
	}
	second := testca.New(t)
	server, next := second.Server(t, "127.0.0.1"), second.Client(t, "ci")
	for from, to := range map[string]string{server.Certificate: files.Certificate, server.Key: files.Key, second.File: files.ClientCA} {
		text, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := list(second, next); err != nil {
		t.Errorf("with the new CA: %v", err)
	}
	if err := list(first, old); err == nil {
		t.Error("a certificate of the old CA is still good")
	}
	if !says(log.String(), "were read again") {
		t.Error("the log does not say that they were read again")
	}
}

// Who came in by an authority that is trusted no more is cut off, without another client to
// notice it; whom the new ones have signed, too, goes on by the same connection.
func TestReloadCutsOff(t *testing.T) {
	old, stays := testca.New(t), testca.New(t)
	log := &logged{}
	agent, local, address := tcp(t, old, func(c *Config) {
		c.Log = log.logger()
		c.Settings.Allow = []access.Rule{{Certificates: []string{"*"}, Verbs: []access.Verb{access.All}, Targets: []string{"*"}}}
		c.Settings.TCP.ClientCA = filepath.Join(t.TempDir(), "both.pem")
		trust(t, c.Settings.TCP.ClientCA, old, stays)
	})
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	gone, err := open(t, old, address, old.Client(t, "gone"))
	if err != nil {
		t.Fatal(err)
	}
	spec := held(a)
	spec.TTL = 3 * time.Second // and no longer than that is the grace
	if _, err := gone.Hold(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	before := agent.tls.connections()
	kept, err := open(t, old, address, stays.Client(t, "kept")) // old signed the agent's own
	if err != nil {
		t.Fatal(err)
	}
	var keeps Connection
	for _, c := range agent.tls.connections() {
		if !slices.Contains(before, c) {
			keeps = c
		}
	}
	trust(t, agent.cfg.Settings.TCP.ClientCA, stays)
	eventually(t, "the connection of the old authority is cut off", func() bool {
		open := agent.tls.connections()
		return len(open) == 1 && open[0] == keeps
	})
	if _, err := kept.List(t.Context()); err != nil {
		t.Errorf("a client of an authority that stays: %v", err)
	}
	if _, err := gone.List(t.Context()); err == nil {
		t.Error("a client of an authority that is trusted no more was answered")
	}
	none(t, local) // what it held ends in its grace
	if !says(log.String(), "a client was cut off", "certificate CN gone", "unknown authority") {
		t.Errorf("the log:\n%s", log)
	}
}

// trust writes the authorities into a file.
func trust(t *testing.T, path string, cas ...*testca.CA) {
	t.Helper()
	var text []byte
	for _, ca := range cas {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Cert.Raw})...)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTLSFilesAtStart(t *testing.T) {
	ca := testca.New(t)
	server, other := ca.Server(t, "127.0.0.1"), ca.Client(t, "ci")
	good := config.TCP{Listen: "127.0.0.1:0", Certificate: server.Certificate, Key: server.Key, ClientCA: ca.File}
	for name, tt := range map[string]struct {
		change func(*config.TCP)
		want   string
	}{
		"no key":            {func(s *config.TCP) { s.Key = server.Key + ".none" }, "no such file"},
		"another's key":     {func(s *config.TCP) { s.Key = other.Key }, "private key does not match"},
		"a CA that is none": {func(s *config.TCP) { s.ClientCA = server.Key }, "has no certificate"},
		"an open key": {func(s *config.TCP) {
			s.Key = server.Key + ".open"
			if err := os.WriteFile(s.Key, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}, "may be read by everybody"},
	} {
		s := good
		tt.change(&s)
		if _, err := newTLSDoor(s, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// Over TCP a holder whose connection broke may come back; one that does not loses the
// fault.
func TestHoldOverTCP(t *testing.T) {
	authority := testca.New(t)
	agent, local, address := tcp(t, authority, func(c *Config) {
		c.Settings.Allow = []access.Rule{{Certificates: []string{"ci"}, Verbs: []access.Verb{access.All}, Targets: []string{"*"}}}
	})
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c, err := open(t, authority, address, authority.Client(t, "ci"))
	if err != nil {
		t.Fatal(err)
	}
	resumed := make(chan bool, 1)
	h, err := c.Hold(t.Context(), held(a), func(e fault.Event, _ string) {
		if e.Kind == client.Resumed {
			resumed <- true
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	first := h.Fault()
	agent.tls.cut()
	select {
	case <-resumed:
	case <-time.After(wire.HoldGrace):
		t.Fatal("it did not come back")
	}
	now, err := local.Get(t.Context(), first.ID)
	if err != nil || now.State != fault.Active || now.Token <= first.Token {
		t.Errorf("after the break: %+v, %v, want active with a token above %d", now, err, first.Token)
	}
	if _, err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
	none(t, local)

	// Who never comes back: the grace is no longer than the time to live.
	spec := held(a)
	spec.TTL = 2 * time.Second
	gone, err := open(t, authority, address, authority.Client(t, "ci"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := gone.Hold(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	_ = gone.Close()
	if fs, err := local.List(t.Context()); err != nil || len(fs) != 1 {
		t.Errorf("within the grace: %+v, %v, want the fault", fs, err)
	}
	none(t, local)
}

// cut breaks all connections, as a network does.
func (d *tlsDoor) cut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.open {
		_ = c.Close()
	}
}

// The API describes itself over the unix socket, and over TCP only where that is wanted.
func TestReflection(t *testing.T) {
	authority := testca.New(t)
	for _, on := range []bool{false, true} {
		agent, _, address := tcp(t, authority, func(c *Config) {
			c.Settings.TCP.Reflection = on
			c.Settings.Allow = []access.Rule{{Certificates: []string{"ci"}, Verbs: []access.Verb{access.List}}}
		})
		pair := authority.Client(t, "ci").Load(t)
		overTCP, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: authority.Pool(), Certificates: []tls.Certificate{pair}})))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = overTCP.Close() })
		if err := describe(t.Context(), overTCP); (err == nil) != on || !on && status.Code(err) != codes.Unimplemented {
			t.Errorf("reflection %t over TCP: %v", on, err)
		}
		if err := describe(t.Context(), dial(t, agent.cfg.Socket)); err != nil {
			t.Errorf("over the unix socket: %v", err)
		}
	}
}

func describe(ctx context.Context, conn *grpc.ClientConn) error {
	s, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err == nil {
		err = s.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
	}
	if err == nil || errors.Is(err, io.EOF) { // that it has ended already, Recv says why
		_, err = s.Recv()
	}
	return err
}
