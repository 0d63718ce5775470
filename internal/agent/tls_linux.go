package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"

	"netemd/internal/config"
	"netemd/internal/fault"
)

// handshakeTime bounds a TLS handshake: who says nothing holds nothing.
const handshakeTime = 5 * time.Second

// tlsDoor lets clients in over TCP that show a certificate of the configured CA, and only
// with TLS 1.3. It is safe for concurrent use.
type tlsDoor struct {
	cfg config.TCP
	log *slog.Logger

	mu sync.Mutex
	// now is what new connections get, of files that looked like seen.
	now  *tls.Config
	seen string
	// open are the connections that are let in.
	open map[net.Conn]admitted
}

// admitted is who came in by a connection, and by which certificates.
type admitted struct {
	Connection
	owner string
	chain []*x509.Certificate
}

// handshake lets a client in, whose connection counts from then on as one by which the
// agent is controlled.
func (d *tlsDoor) handshake(conn net.Conn) (net.Conn, peerInfo, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), handshakeTime, errors.New("the client was silent"))
	defer cancel()
	cfg := d.config()
	c := tls.Server(conn, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		return conn, peerInfo{address: conn.RemoteAddr().String()}, fmt.Errorf("tls: %w", err)
	}
	chain := c.ConnectionState().PeerCertificates
	info := certified(chain[0])
	info.address = conn.RemoteAddr().String()
	if err := d.enter(conn, cfg, info, chain); err != nil {
		return c, info, err
	}
	return &counted{Conn: c, done: func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, conn)
	}}, info, nil
}

// enter counts the connection of a client who has a name, and who is trusted also by what
// came during its handshake.
func (d *tlsDoor) enter(conn net.Conn, cfg *tls.Config, info peerInfo, chain []*x509.Certificate) error {
	if !info.byTLS() {
		return fmt.Errorf("%w: the client's certificate has neither a subject common name nor a URI", fault.ErrDenied)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if cfg != d.now {
		if err := trusted(d.now, chain); err != nil {
			return fmt.Errorf("tls: %w", err)
		}
	}
	at := Connection{Local: addrPort(conn.LocalAddr()), Remote: addrPort(conn.RemoteAddr())}
	d.open[conn] = admitted{Connection: at, owner: info.owner, chain: chain}
	return nil
}

// connections are those that are let in.
func (d *tlsDoor) connections() []Connection {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Connection, 0, len(d.open))
	for _, c := range d.open {
		all = append(all, c.Connection)
	}
	return all
}

// certified is who a certificate is of: its subject common name and the URIs among its
// subject alternative names, of which the first of all is the owner of what it asks for.
func certified(c *x509.Certificate) peerInfo {
	p := peerInfo{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		commonName:     c.Subject.CommonName,
	}
	for _, u := range c.URIs {
		p.uris = append(p.uris, u.String())
	}
	if p.byTLS() {
		p.owner = "certificate " + p.names()[0]
	}
	return p
}

// printable quotes a name that would not stay in one word or line.
func printable(name string) string {
	if q := strconv.QuoteToASCII(name); q != `"`+name+`"` {
		return q
	}
	return name
}

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	p := tcp.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}
