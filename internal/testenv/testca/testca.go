// Package testca is a certificate authority for tests of TLS: what it signs is valid from an
// hour ago for an hour, and its files go with the test.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA signs certificates for a test.
type CA struct {
	Cert *x509.Certificate
	// File is the PEM file of Cert.
	File string
	key  *ecdsa.PrivateKey
	dir  string
	n    int64
}

// Pair are the PEM files of a certificate and its key.
type Pair struct{ Certificate, Key string }

// New makes an authority.
func New(t testing.TB) *CA {
	t.Helper()
	c := &CA{dir: t.TempDir()}
	own := c.sign(t, &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "test CA"}})
	c.File = own.Certificate
	loaded := own.Load(t)
	c.Cert, c.key = loaded.Leaf, loaded.PrivateKey.(*ecdsa.PrivateKey)
	return c
}

// sign makes a certificate of the template, by itself where there is no authority yet.
func (c *CA) sign(t testing.TB, template *x509.Certificate) Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.n++
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(c.n), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, by := c.Cert, c.key
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := Pair{Certificate: filepath.Join(c.dir, fmt.Sprintf("%d.pem", c.n)), Key: filepath.Join(c.dir, fmt.Sprintf("%d.key", c.n))}
	if err := errors.Join(
		os.WriteFile(p.Certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644),
		os.WriteFile(p.Key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text}), 0o600)); err != nil {
		t.Fatal(err)
	}
	return p
}

// Server signs the certificate of an agent at host, a name or an address.
func (c *CA) Server(t testing.TB, host string) Pair {
	t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: host}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	return c.sign(t, template)
}

// Client signs the certificate of a client with that common name, and those URIs among the
// alternative names.
func (c *CA) Client(t testing.TB, commonName string, uris ...string) Pair {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, u := range uris {
		parsed, err := url.Parse(u)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, parsed)
	}
	return c.sign(t, template)
}

// Pool trusts the authority alone.
func (c *CA) Pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(c.Cert)
	return p
}

// Load reads the files.
func (p Pair) Load(t testing.TB) tls.Certificate {
	t.Helper()
	loaded, err := tls.LoadX509KeyPair(p.Certificate, p.Key)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}
