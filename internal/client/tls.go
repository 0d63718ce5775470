package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"

	"google.golang.org/grpc/credentials"

	"netemd/internal/fault"
)

// attempt is told what a try of a connection ended with, which gRPC only tells as text
// and after more tries. It must be safe for concurrent use; only the first matters.
type attempt func(error)

// failed tells err and returns it.
func (a attempt) failed(err error) error {
	if err != nil {
		a(err)
	}
	return err
}

// tlsCredentials are TLS 1.3 with a certificate of the client's, that tell why a
// handshake failed. An agent refuses a client's certificate only after the client's part
// of the handshake has ended (RFC 8446, section 2), so what is read then counts, too.
type tlsCredentials struct {
	credentials.TransportCredentials
	try attempt
}

func newTLS(e Endpoint, try attempt) (credentials.TransportCredentials, error) {
	if _, err := tls.LoadX509KeyPair(e.Certificate, e.Key); err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", e.Certificate, e.Key, err)
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS13, ServerName: e.serverName(),
		// A long hold outlives the files of its beginning.
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			c, err := tls.LoadX509KeyPair(e.Certificate, e.Key)
			return &c, err
		},
	}
	if e.CA != "" {
		pem, err := os.ReadFile(e.CA)
		if err != nil {
			return nil, fmt.Errorf("authorities: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("authorities: %s has no certificate in PEM", e.CA)
		}
	}
	return tlsCredentials{credentials.NewTLS(cfg), try}, nil
}

func (c tlsCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, c.try.failed(err)
	}
	return alertConn{conn, c.try}, info, nil
}

func (c tlsCredentials) Clone() credentials.TransportCredentials {
	return tlsCredentials{c.TransportCredentials.Clone(), c.try}
}

// alertConn tells what the other end said when it refused.
type alertConn struct {
	net.Conn
	try attempt
}

func (c alertConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if isAlert(err) {
		return n, c.try.failed(err)
	}
	return n, err
}

// isAlert reports whether the other end ended the connection by an alert of TLS, as
// crypto/tls tells it.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// refused says what a failed handshake means, nil when err is none.
func refused(e Endpoint, err error) error {
	var verification *tls.CertificateVerificationError
	switch {
	case isAlert(err):
		return fault.WithHint(fmt.Errorf("agent at %s: %w: it refused the certificate %s: %w", e.Address, fs.ErrPermission, e.Certificate, err),
			"it must be from the authority that the agent's configuration names (tcp.client_ca), and be valid now")
	case errors.As(err, &verification):
		return fault.WithHint(fmt.Errorf("agent at %s: %w", e.Address, err),
			"name the authority that it is from with --tls-ca, and with --tls-server-name the name in it")
	}
	return nil
}
