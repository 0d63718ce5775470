package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/credentials"

	"netemd/internal/fault"
	"netemd/internal/wire"
)

// authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "netemd test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// sign makes the files of a certificate for host and for use.
func (a *authority) sign(t *testing.T, host string, use x509.ExtKeyUsage) (cert, key string) {
	t.Helper()
	k := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: host}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), write(t, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

func write(t *testing.T, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// client is what a client needs to come in.
func (a *authority) client(t *testing.T) (cert, key, ca string) {
	t.Helper()
	cert, key = a.sign(t, "ci", x509.ExtKeyUsageClientAuth)
	return cert, key, write(t, a.pem)
}

// server is an agent's side, as the agent has it.
func (a *authority) server(t *testing.T, host string) credentials.TransportCredentials {
	t.Helper()
	cert, key := a.sign(t, host, x509.ExtKeyUsageServerAuth)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})
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
	ours, theirs := newAuthority(t), newAuthority(t)
	a := newAgent()
	l := listen(t, "127.0.0.1:0")
	a.serve(t, l, ours.server(t, "127.0.0.1"))
	cert, key, ca := ours.client(t)
	e := Endpoint{Address: l.Addr().String(), Certificate: cert, Key: key, CA: ca}
	c := open(t, e)
	if _, err := c.Apply(t.Context(), spec()); err != nil {
		t.Error(err)
	}
	strange := e
	strange.Certificate, strange.Key, _ = theirs.client(t)
	began := time.Now()
	if _, err := Open(strange); !errors.Is(err, fs.ErrPermission) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "refused the certificate") || fault.HintOf(err) == "" {
		t.Errorf("a certificate of others, after %v: %v", time.Since(began), err)
	}
	agents := e
	_, _, agents.CA = theirs.client(t)
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
		{Address: e.Address, Certificate: ca, Key: key, CA: ca}, {Address: e.Address, Certificate: cert, Key: filepath.Join(t.TempDir(), "none"), CA: ca},
		{Address: e.Address, Certificate: cert, Key: key, CA: key}, {Address: e.Address, Certificate: cert, Key: key, CA: filepath.Join(t.TempDir(), "none")},
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
	ca := newAuthority(t)
	l := listen(t, "127.0.0.1:0")
	newAgent().serve(t, l, ca.server(t, "agent.example"))
	cert, key, roots := ca.client(t)
	e := Endpoint{Address: l.Addr().String(), Certificate: cert, Key: key, CA: roots, ServerName: "agent.example"}
	if f, err := open(t, e).Apply(t.Context(), spec()); err != nil || f.ID != "f1" {
		t.Errorf("fault %+v, error %v", f, err)
	}
}

// TestHoldResumes: over TCP a hold outlives its connection, and takes the fault along.
func TestHoldResumes(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	a := newAgent()
	a.grace = wire.HoldGrace
	l := listen(t, "127.0.0.1:0")
	address, secure := l.Addr().String(), ca.server(t, "127.0.0.1")
	kill := a.serve(t, l, secure)
	cert, key, roots := ca.client(t)
	w := newTold()
	h, err := open(t, Endpoint{Address: address, Certificate: cert, Key: key, CA: roots}).Hold(t.Context(), spec(), w.notify)
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
		ca := newAuthority(t)
		a := newAgent()
		a.grace = wire.HoldGrace
		l := listen(t, "127.0.0.1:0")
		secure := ca.server(t, "127.0.0.1")
		kill := a.serve(t, l, secure)
		cert, key, roots := ca.client(t)
		w := newTold()
		h, err := open(t, Endpoint{Address: l.Addr().String(), Certificate: cert, Key: key, CA: roots}).Hold(t.Context(), spec(), w.notify)
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
	ca := newAuthority(t)
	a := newAgent()
	l := listen(t, "127.0.0.1:0")
	kill := a.serve(t, l, ca.server(t, "127.0.0.1"))
	cert, key, roots := ca.client(t)
	s := spec()
	s.TTL = time.Second // which is shorter than the grace
	w := newTold()
	h, err := open(t, Endpoint{Address: l.Addr().String(), Certificate: cert, Key: key, CA: roots}).Hold(t.Context(), s, w.notify)
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
