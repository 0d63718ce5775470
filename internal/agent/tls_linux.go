package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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
	open map[net.Conn]Connection
}

// newTLSDoor reads the files. Later, what they have become is read at the next handshake;
// where that is of no use, what was there before goes on.
func newTLSDoor(cfg config.TCP, log *slog.Logger) (*tlsDoor, error) {
	d := &tlsDoor{cfg: cfg, log: log, open: map[net.Conn]Connection{}}
	var err error
	if d.seen, err = d.look(); err == nil {
		d.now, err = d.load()
	}
	if err != nil {
		return nil, fmt.Errorf("tcp: %w", err)
	}
	return d, nil
}

// look says what the three files are like, so that a change is noticed.
func (d *tlsDoor) look() (string, error) {
	var all strings.Builder
	for _, path := range []string{d.cfg.Certificate, d.cfg.Key, d.cfg.ClientCA} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		fmt.Fprint(&all, st.Dev, st.Ino, st.Mode, st.Size, st.Mtim, st.Ctim, ";")
	}
	return all.String(), nil
}

func (d *tlsDoor) load() (*tls.Config, error) {
	st, err := os.Stat(d.cfg.Key)
	if err != nil {
		return nil, err
	}
	if st.Mode().Perm()&0o007 != 0 {
		return nil, fmt.Errorf("%s: the key may be read by everybody: %w", d.cfg.Key, fs.ErrPermission)
	}
	pair, err := tls.LoadX509KeyPair(d.cfg.Certificate, d.cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", d.cfg.Certificate, d.cfg.Key, err)
	}
	text, err := os.ReadFile(d.cfg.ClientCA)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s: has no certificate", d.cfg.ClientCA)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, NextProtos: []string{"h2"},
		// A session that goes on would be of the CA that was there when it began.
		SessionTicketsDisabled: true,
	}, nil
}

// config is what a new connection gets: of the files as they are, when they are sound.
func (d *tlsDoor) config() *tls.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	seen, err := d.look()
	if err == nil && seen == d.seen {
		return d.now
	}
	if err == nil {
		var fresh *tls.Config
		if fresh, err = d.load(); err == nil {
			d.now, d.seen = fresh, seen
			d.log.Info("tcp: certificate, key and client CA were read again")
			return d.now
		}
	}
	if why := "refused: " + seen; d.seen != why { // said once for each state of the files
		d.log.Error("tcp: the changed certificate, key or client CA is of no use; those from before stay in force", "err", err)
		d.seen = why
	}
	return d.now
}

// handshake lets a client in, whose connection counts from then on as one by which the
// agent is controlled.
func (d *tlsDoor) handshake(conn net.Conn) (net.Conn, peerInfo, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), handshakeTime, errors.New("the client was silent"))
	defer cancel()
	c := tls.Server(conn, d.config())
	if err := c.HandshakeContext(ctx); err != nil {
		return nil, peerInfo{address: conn.RemoteAddr().String()}, fmt.Errorf("tls: %w", err)
	}
	info := certified(c.ConnectionState().PeerCertificates[0])
	info.address = conn.RemoteAddr().String()
	if !info.byTLS() {
		err := fmt.Errorf("%w: the client's certificate has neither a subject common name nor a URI", fault.ErrDenied)
		return nil, info, errors.Join(err, c.Close())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open[conn] = Connection{Local: addrPort(conn.LocalAddr()), Remote: addrPort(conn.RemoteAddr())}
	return &counted{Conn: c, done: func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, conn)
	}}, info, nil
}

// connections are those that are let in.
func (d *tlsDoor) connections() []Connection {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Connection, 0, len(d.open))
	for _, c := range d.open {
		all = append(all, c)
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
