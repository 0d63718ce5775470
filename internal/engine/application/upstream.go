package application

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// dialLimit is how long a connection to the upstream may take.
const dialLimit = 10 * time.Second

// dialError says that the upstream takes no connection.
type dialError struct{ err error }

func (e *dialError) Error() string { return e.err.Error() }
func (e *dialError) Unwrap() error { return e.err }

// streamWindow bounds what is on its way in a stream, in bytes, at each of the proxy's ends: what a
// server sent and a slow client did not read yet.
const streamWindow = 256 << 10

// newTransport makes connections to the upstream, of HTTP/2 without TLS or HTTP/1.1. None is
// kept by it.
func newTransport(http2 bool) *http.Transport {
	t := &http.Transport{
		DisableCompression: true, ExpectContinueTimeout: time.Second, Protocols: new(http.Protocols),
		DialContext: (&net.Dialer{Timeout: dialLimit, KeepAlive: 15 * time.Second}).DialContext,
		HTTP2:       &http.HTTP2Config{MaxReceiveBufferPerStream: streamWindow, StrictMaxConcurrentRequests: true},
	}
	t.Protocols.SetHTTP1(!http2)
	t.Protocols.SetUnencryptedHTTP2(http2)
	return t
}

// upstream makes links.
type upstream struct {
	address string
	one     *http.Transport // HTTP/1.1
	two     *http.Transport // HTTP/2
}

func newUpstream(address string) *upstream {
	return &upstream{address: address, one: newTransport(false), two: newTransport(true)}
}

// link is what a client's connection has to the upstream: one connection at a time.
type link struct {
	upstream *upstream
	socket   *net.TCPConn // the client's
	// turn holds one value while somebody looks at, or makes, the connection.
	turn   chan struct{}
	now    *http.ClientConn
	closed bool
}

func newLink(u *upstream, socket *net.TCPConn) *link {
	return &link{upstream: u, socket: socket, turn: make(chan struct{}, 1)}
}

type linkKey struct{}

// linkOf is the link of the connection by which a request came.
func linkOf(ctx context.Context) *link {
	l, _ := ctx.Value(linkKey{}).(*link)
	return l
}

// connection returns the connection, which is made if there is none.
func (l *link) connection(ctx context.Context, http2 bool) (*http.ClientConn, error) {
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-l.turn }()
	if l.closed {
		return nil, net.ErrClosed
	}
	if l.now != nil && l.now.Err() == nil {
		return l.now, nil
	}
	t := l.upstream.one
	if http2 {
		t = l.upstream.two
	}
	made, err := t.NewClientConn(ctx, "http", l.upstream.address)
	if err != nil {
		return nil, &dialError{fmt.Errorf("upstream: %w", err)}
	}
	if l.now != nil {
		_ = l.now.Close()
	}
	l.now = made
	return made, nil
}

// close ends the connection when the client's does.
func (l *link) close() {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	l.closed = true
	if l.now != nil {
		_ = l.now.Close()
	}
}

// trips sends each request by the link of its connection.
type trips struct{}

// RoundTrip implements http.RoundTripper.
func (trips) RoundTrip(r *http.Request) (*http.Response, error) {
	l := linkOf(r.Context())
	if l == nil {
		return nil, errors.New("no connection")
	}
	c, err := l.connection(r.Context(), r.ProtoMajor == 2)
	if err != nil {
		return nil, err
	}
	return c.RoundTrip(r)
}

// listener gives each connection its link, which ends with it.
type listener struct {
	*net.TCPListener
	upstream *upstream
}

// conn is a client's connection.
type conn struct {
	*net.TCPConn
	link *link
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	return &conn{TCPConn: c, link: newLink(l.upstream, c)}, nil
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.TCPConn.Close()
	go c.link.close() // it may wait for one that is being made
	return err
}
