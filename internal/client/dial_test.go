package client

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/testenv/testca"
	"netemd/internal/wire"
	"netemd/qdisc"
)

// unanswered opens e and wants ErrUnreachable in time, in these words.
func unanswered(t *testing.T, e Endpoint, words string) {
	t.Helper()
	var took time.Duration
	for range 3 { // the machine may stand still for a moment
		began := time.Now()
		c, err := Open(e)
		if took = time.Since(began); err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), words) {
			t.Fatalf("%v: %v", e, err)
		}
		if took <= 2*time.Second {
			return
		}
	}
	t.Errorf("%v: told after %v", e, took)
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unanswered(t, Endpoint{Socket: filepath.Join(dir, "none")}, "nothing listens")
	dead := filepath.Join(dir, "dead")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	unanswered(t, Endpoint{Socket: dead}, "nothing listens")
	mute := filepath.Join(dir, "mute")
	m, err := net.Listen("unix", mute) // the kernel accepts, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	unanswered(t, Endpoint{Socket: mute}, "does not answer within")
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := endpoint(t, testca.New(t), tcp.Addr().String())
	unanswered(t, e, "does not answer within")
	if err := tcp.Close(); err != nil {
		t.Fatal(err)
	}
	unanswered(t, e, "nothing listens")
	e.Address = "no-such-host.invalid:9526"
	unanswered(t, e, "no-such-host.invalid")
}

func TestEndpointValidate(t *testing.T) {
	for _, e := range []Endpoint{
		{}, {Socket: "/s"}, {Address: "[::1]:9526", Certificate: "c", Key: "k"}, {Address: "ci.example:9526", Certificate: "c", Key: "k", CA: "a", ServerName: "n"},
	} {
		if err := e.Validate(); err != nil {
			t.Errorf("%+v: %v", e, err)
		}
	}
	for _, e := range []Endpoint{
		{Socket: "/s", Address: "a:1", Certificate: "c", Key: "k"}, {Address: "a:1"}, {Address: "a:1", Certificate: "c"}, {Address: "a:1", Key: "k"},
		{Address: "a", Certificate: "c", Key: "k"}, {Address: ":1", Certificate: "c", Key: "k"}, {Address: "a:0", Certificate: "c", Key: "k"},
		{Address: "a:65536", Certificate: "c", Key: "k"}, {Address: "a:http", Certificate: "c", Key: "k"}, {Certificate: "c", Key: "k"}, {CA: "a"}, {ServerName: "n"},
	} {
		var f *qdisc.FieldError
		if err := e.Validate(); !errors.As(err, &f) || f.Field != "address" {
			t.Errorf("%+v: %v", e, err)
		}
		if _, err := Open(e); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("open %+v: %v", e, err)
		}
	}
	if got := (Endpoint{}).String() + " " + (Endpoint{Socket: "/s"}).String() + " " + (Endpoint{Address: "a:1"}).String(); got != DefaultSocket+" /s a:1" {
		t.Error(got)
	}
}

// TestErrorsOfTheAgent: what is gRPC's own comes in words, too.
func TestErrorsOfTheAgent(t *testing.T) {
	a := newAgent()
	socket, kill := a.onSocket(t)
	c := open(t, Endpoint{Socket: socket})
	s := spec()
	s.Target = strings.Repeat("x", wire.MaxRequest)
	_, err := c.Apply(t.Context(), s)
	if err == nil || !strings.Contains(err.Error(), "1048576") || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("a large request: %v", err)
	}
	if _, err := c.Labs(t.Context()); err == nil || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("an unknown service: %v", err)
	}
	if _, err := c.Get(t.Context(), "f9"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an unknown fault: %v", err)
	}
	if err := c.Watch(t.Context(), 7, "other", nil); !errors.Is(err, fault.ErrMissed) {
		t.Errorf("another life: %v", err)
	}
	kill()
	if _, err := c.Get(t.Context(), "f1"); !errors.Is(err, ErrUnreachable) {
		t.Errorf("an agent that died: %v", err)
	}
}

func TestWatchGoesOn(t *testing.T) {
	a := newAgent()
	socket, _ := a.onSocket(t)
	c := open(t, Endpoint{Socket: socket})
	ctx, cancel := context.WithCancel(t.Context())
	var got fault.Event
	err := c.Watch(ctx, 41, "xyz", func(e fault.Event) {
		got = e
		cancel()
	})
	if got.Number != 42 || got.Life != "xyz" || got.Monotonic != 5 || got.Kind != "lost" || !errors.Is(err, context.Canceled) {
		t.Errorf("event %+v, error %v", got, err)
	}
}

// TestWatchEnds: an agent that stops ends the watch, which nobody asked for.
func TestWatchEnds(t *testing.T) {
	a := newAgent()
	a.stopped = true
	socket, _ := a.onSocket(t)
	err := open(t, Endpoint{Socket: socket}).Watch(t.Context(), 0, "", func(fault.Event) {})
	if !errors.Is(err, ErrStopped) || !errors.Is(err, ErrUnreachable) {
		t.Errorf("%v, want ErrStopped", err)
	}
}

// TestDenied: a socket that may not be opened is no agent that is away.
func TestDenied(t *testing.T) {
	if os.Getuid() == 0 {
		// Root opens every socket; what the kernel says is what knock translates.
		t.Skip("needs another user than root")
	}
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(filepath.Join(dir, "s"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Endpoint{Socket: filepath.Join(dir, "s")}); !errors.Is(err, fs.ErrPermission) || errors.Is(err, ErrUnreachable) {
		t.Errorf("%v", err)
	}
}
