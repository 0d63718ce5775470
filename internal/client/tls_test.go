package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/credentials"

	"netemd/internal/fault"
	"netemd/internal/testenv/testca"
	"netemd/internal/wire"
)

// ofAgent is an agent's side of TLS, as the agent has it.
func ofAgent(t *testing.T, ca *testca.CA, host string) credentials.TransportCredentials {
	t.Helper()
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{ca.Server(t, host).Load(t)}, ClientCAs: ca.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	})
}

// endpoint is an agent over TCP with what a client of ca needs to come in.
func endpoint(t *testing.T, ca *testca.CA, address string) Endpoint {
	t.Helper()
	pair := ca.Client(t, "ci")
	return Endpoint{Address: address, Certificate: pair.Certificate, Key: pair.Key, CA: ca.File}
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	var l net.Listener
	eventually(t, "the address is free", func() bool {
		var err error
		l, err = net.Listen("tcp", address)
		return err == nil
	})
	return l
}

func TestTCP(t *testing.T) {
	ours, theirs := testca.New(t), testca.New(t)
	a := newAgent()
	l := listen(t, "127.0.0.1:0")
	a.serve(t, l, ofAgent(t, ours, "127.0.0.1"))
	e := endpoint(t, ours, l.Addr().String())
	c := open(t, e)
	if _, err := c.Apply(t.Context(), spec()); err != nil {
		t.Error(err)
	}
	strange := endpoint(t, theirs, e.Address)
	strange.CA = e.CA
	began := time.Now()
	if _, err := Open(strange); !errors.Is(err, fs.ErrPermission) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused the certificate") || fault.HintOf(err) == "" {
		t.Errorf("a certificate of others, after %v: %v", time.Since(began), err)
	}
	agents := e
	agents.CA = theirs.File
	var unknown x509.UnknownAuthorityError
	if _, err := Open(agents); !errors.As(err, &unknown) || errors.Is(err, ErrUnreachable) || !strings.Contains(fault.HintOf(err), "--tls-ca") {
		t.Errorf("an agent of others: %v", err)
	}
	named := e
	named.ServerName = "other.example"
	var host x509.HostnameError
	if _, err := Open(named); !errors.As(err, &host) {
		t.Errorf("an agent of another name: %v", err)
	}
	for _, broken := range []Endpoint{
		{Address: e.Address, Certificate: e.CA, Key: e.Key, CA: e.CA}, {Address: e.Address, Certificate: e.Certificate, Key: filepath.Join(t.TempDir(), "none"), CA: e.CA},
		{Address: e.Address, Certificate: e.Certificate, Key: e.Key, CA: e.Key}, {Address: e.Address, Certificate: e.Certificate, Key: e.Key, CA: filepath.Join(t.TempDir(), "none")},
	} {
		if _, err := Open(broken); err == nil || errors.Is(err, ErrUnreachable) {
			t.Errorf("%+v: %v", broken, err)
		}
	}
	plain := listen(t, "127.0.0.1:0")
	newAgent().serve(t, plain, insecureCredentials())
	e.Address = plain.Addr().String()
	if _, err := Open(e); !errors.Is(err, ErrUnreachable) {
		t.Errorf("an agent without TLS: %v", err)
	}
}

// TestServerName: the name that is asked for is the one in the certificate.
func TestServerName(t *testing.T) {
	ca := testca.New(t)
	l := listen(t, "127.0.0.1:0")
	newAgent().serve(t, l, ofAgent(t, ca, "agent.example"))
	e := endpoint(t, ca, l.Addr().String())
	e.ServerName = "agent.example"
	if f, err := open(t, e).Apply(t.Context(), spec()); err != nil || f.ID != "f1" {
		t.Errorf("fault %+v, error %v", f, err)
	}
}

// TestHoldResumes: over TCP a hold outlives its connection, and takes the fault along.
func TestHoldResumes(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	a := newAgent()
	a.grace = wire.HoldGrace
	l := listen(t, "127.0.0.1:0")
	address, secure := l.Addr().String(), ofAgent(t, ca, "127.0.0.1")
	kill := a.serve(t, l, secure)
	w := newTold()
	h, err := open(t, endpoint(t, ca, address)).Hold(t.Context(), spec(), w.notify)
	if err != nil {
		t.Fatal(err)
	}
	kill()
	w.wait(t, 1)
	if err := h.Renew(); err != nil {
		t.Errorf("renew while the connection is broken: %v", err)
	}
	a.serve(t, listen(t, address), secure)
	if diff := cmp.Diff([]string{Broken, Resumed}, w.wait(t, 2)); diff != "" {
		t.Fatal(diff)
	}
	if f := h.Fault(); f.ID != "f1" || f.Token != 2 {
		t.Errorf("fault %+v", f)
	}
	if err := h.Renew(); err != nil {
		t.Error(err)
	}
	if last, err := h.Release(t.Context()); err != nil || last.State != fault.Active {
		t.Errorf("last %+v, error %v", last, err)
	}
	if diff := cmp.Diff([]string{"apply f1", "resume f1", "renew f1", "release f1"}, a.logged()); diff != "" {
		t.Error(diff)
	}
}

// TestHoldNotResumed: what ended meanwhile, or belongs to a newer holder, is told.
func TestHoldNotResumed(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(a *agent){
		"ended": func(a *agent) { a.faults = map[string]*fakeFault{} },
		"taken": func(a *agent) { a.faults["f1"].token = 9 },
	} {
		ca := testca.New(t)
		a := newAgent()
		a.grace = wire.HoldGrace
		l := listen(t, "127.0.0.1:0")
		secure := ofAgent(t, ca, "127.0.0.1")
		kill := a.serve(t, l, secure)
		w := newTold()
		h, err := open(t, endpoint(t, ca, l.Addr().String())).Hold(t.Context(), spec(), w.notify)
		if err != nil {
			t.Fatal(err)
		}
		kill()
		a.mu.Lock()
		meanwhile(a)
		a.mu.Unlock()
		a.serve(t, listen(t, l.Addr().String()), secure)
		if diff := cmp.Diff([]string{Broken, Gone}, w.wait(t, 2)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		last, err := h.Release(t.Context())
		if want := map[string]error{"ended": fs.ErrNotExist, "taken": fault.ErrConflict}[name]; !errors.Is(err, want) || last.State == fault.Active {
			t.Errorf("%s: last %+v, error %v", name, last, err)
		}
		if left := a.standing(); name == "taken" && left != 1 {
			t.Errorf("the fault of the newer holder was ended")
		}
	}
}

// TestHoldGivesUp: an agent that does not come back in the grace has ended the fault.
func TestHoldGivesUp(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	a := newAgent()
	l := listen(t, "127.0.0.1:0")
	kill := a.serve(t, l, ofAgent(t, ca, "127.0.0.1"))
	s := spec()
	s.TTL = time.Second // which is shorter than the grace
	w := newTold()
	h, err := open(t, endpoint(t, ca, l.Addr().String())).Hold(t.Context(), s, w.notify)
	if err != nil {
		t.Fatal(err)
	}
	kill()
	if diff := cmp.Diff([]string{Broken, Gone}, w.wait(t, 2)); diff != "" {
		t.Error(diff)
	}
	if _, err := h.Release(t.Context()); !errors.Is(err, ErrUnreachable) {
		t.Errorf("error %v", err)
	}
}
