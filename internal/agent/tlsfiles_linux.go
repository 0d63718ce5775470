package agent

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/config"
)

// filesEvery is how often the files are looked at: who is trusted no more is cut off after
// that time at the latest, whether others come or not.
const filesEvery = 2 * time.Second

// newTLSDoor reads the files. Later, what they have become is read at the next handshake, or
// by watch; where that is of no use, what was there before goes on.
func newTLSDoor(cfg config.TCP, log *slog.Logger) (*tlsDoor, error) {
	d := &tlsDoor{cfg: cfg, log: log, open: map[net.Conn]admitted{}}
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
			d.cutOff()
			return d.now
		}
	}
	if why := "refused: " + seen; d.seen != why { // said once for each state of the files
		d.log.Error("tcp: the changed certificate, key or client CA is of no use; those from before stay in force", "err", err)
		d.seen = why
	}
	return d.now
}

// watch looks at the files until done is closed.
func (d *tlsDoor) watch(done <-chan struct{}) {
	tick := time.NewTicker(filesEvery)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			d.config()
		}
	}
}

// cutOff closes the connections of clients whose certificates are not good by what new ones
// get: a connection may last for days. What they hold ends by itself, as after any break. The
// caller holds the lock.
func (d *tlsDoor) cutOff() {
	for conn, c := range d.open {
		if err := trusted(d.now, c.chain); err != nil {
			d.log.Warn("tcp: a client was cut off", "by", c.owner, "address", c.Remote.String(), "err", err)
			_ = conn.Close() // its reader takes it out
		}
	}
}

// trusted returns nil for a client's certificates, its own first, that a handshake would take
// now.
func trusted(cfg *tls.Config, chain []*x509.Certificate) error {
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: cfg.ClientCAs, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}
