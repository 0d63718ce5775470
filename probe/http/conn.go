package http

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"netemd/probe"
)

// conn is a client connection, and the account of its socket.
type conn struct {
	socket *probe.Socket
	http   *http.ClientConn
	read   *reader
	// share says that several calls use it at a time.
	share bool
	// again says that an earlier call has made it, last that the server closes it.
	again, last bool
}

// reader tells somebody of everything that comes, and remembers how the connection ended:
// the library may say instead what it could not make of the last bytes.
type reader struct {
	net.Conn
	told atomic.Pointer[func()]
	end  atomic.Pointer[error]
}

func (r *reader) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if f := r.told.Load(); f != nil && n > 0 {
		(*f)()
	}
	if err != nil {
		r.end.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (r *reader) Write(b []byte) (int, error) {
	n, err := r.Conn.Write(b)
	if err != nil {
		r.end.CompareAndSwap(nil, &err)
	}
	return n, err
}

// ended is the network's own error; nil without one.
func (c *conn) ended() error {
	if c == nil || c.read == nil {
		return nil
	}
	if err := c.read.end.Load(); err != nil {
		return *err
	}
	return nil
}

func (c *conn) watch(f func()) {
	if f == nil {
		c.read.told.Store(nil)
		return
	}
	c.read.told.Store(&f)
}

type dialing struct{}

// dial makes the connection of the conn in the context.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, _ := ctx.Value(dialing{}).(*conn)
	raw, err := c.socket.Dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c.read = &reader{Conn: raw}
	return c.read, nil
}

// connect makes a connection. It is returned with an error too, for its account.
func (p *Probe) connect(ctx context.Context, t *times) (*conn, error) {
	c := &conn{socket: probe.NewSocket(), share: p.Keep && p.version() == V2}
	t.dialed = probe.Now()
	t.socket = c.socket
	scheme := "http"
	if p.TLS {
		scheme = "https"
	}
	made, err := p.transport.NewClientConn(t.trace(context.WithValue(ctx, dialing{}, c), func() {}), scheme, p.Address.String())
	c.http = made
	if err != nil && c.connected() {
		_ = c.socket.Conn().Close() // a handshake that failed
	}
	return c, err
}

func (c *conn) connected() bool { return c.socket.Conn() != nil }

// take gives a kept connection, or makes one.
func (p *Probe) take(ctx context.Context, t *times) (*conn, error) {
	if p.err != nil {
		return nil, p.err
	}
	if p.Keep && p.version() == V2 {
		return p.one(ctx, t)
	}
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, errClosed
		}
		n := len(p.idle)
		if n == 0 {
			p.mu.Unlock()
			return p.connect(ctx, t)
		}
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		if c.http.Err() != nil {
			c.close(false)
			continue
		}
		c.again = true
		c.socket.Begin()
		return c, nil
	}
}

// one gives the connection that all calls share. Who finds none makes it, and the others
// wait for that.
func (p *Probe) one(ctx context.Context, t *times) (*conn, error) {
	t.waited = probe.Now()
	select {
	case p.making <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.making }()
	p.mu.Lock()
	c, closed := p.shared, p.closed
	p.mu.Unlock()
	if closed {
		return nil, errClosed
	}
	t.given = probe.Now()
	if c != nil && c.http.Err() == nil && !c.last {
		t.before = c.socket.Info()
		return &conn{socket: c.socket, http: c.http, read: c.read, share: true, again: true}, nil
	}
	if c != nil {
		c.close(false)
	}
	c, err := p.connect(ctx, t)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared = nil
	if err != nil {
		return c, err
	}
	if p.closed {
		c.close(false)
		return c, errClosed
	}
	p.shared = c
	return &conn{socket: c.socket, http: c.http, read: c.read, share: true}, nil
}

// give keeps the connection of a call that has ended, or closes it.
func (p *Probe) give(c *conn, good bool) {
	if c.http == nil || c.share {
		return
	}
	p.mu.Lock()
	keep := good && p.Keep && !p.closed && !c.last && c.http.Err() == nil
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.close(good)
	}
}

// close closes, with TLS's goodbye on a connection that is well; a broken one is cut off
// first, since that goodbye waits for it.
func (c *conn) close(well bool) {
	if !well {
		_ = c.socket.Conn().Close()
	}
	cut := time.AfterFunc(closeLimit, func() { _ = c.socket.Conn().Close() })
	_ = c.http.Close() // nobody waits for anything of it
	cut.Stop()
	_ = c.socket.Conn().Close()
}

// guard cuts the connection off when a call does not end with its context, as when what it
// has to write is stuck.
func (c *conn) guard(ctx context.Context) (off func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		t := time.NewTimer(closeLimit)
		defer t.Stop()
		select {
		case <-t.C:
			_ = c.socket.Conn().Close()
		case <-done:
		}
	})
	return func() {
		stop()
		close(done)
	}
}

// record writes the connection's account.
func (c *conn) record(s *probe.Sample, t *times) {
	if !c.share {
		turns := s.Turns
		c.socket.Record(s)
		s.Turns = turns // without what comes unasked, as settings and tickets do
		return
	}
	c.socket.Share(s, t.before)
	if !c.again {
		s.Reused, s.ConnectNS, s.Made = false, c.socket.ConnectNS(), c.socket.Made()
	}
}
