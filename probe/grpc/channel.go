package grpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"netemd/probe"
)

// channel is gRPC's, and the account of the connections that it makes.
type channel struct {
	cc *grpc.ClientConn
	// once lets it make one connection only.
	once bool

	mu    sync.Mutex
	made  int
	links map[netip.AddrPort]*link
	// last is the latest connect, failed or not; its done is closed when it has ended.
	last *link
}

// link is one connection, or the try to make one.
type link struct {
	socket *probe.Socket
	done   chan struct{}
	// began and connected are when; failed is the sample's part of a connect that failed.
	began, connected int64
	err              error
	failed           probe.Sample
	// end is how the connection itself ended.
	end atomic.Pointer[error]
}

// open makes a channel, which connects at its first call.
func open(at netip.AddrPort, once bool) (*channel, error) {
	c := &channel{once: once, links: map[netip.AddrPort]*link{}}
	var err error
	c.cc, err = grpc.NewClient("passthrough:///"+at.String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(c.dial),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithStatsHandler(handler{}),
		grpc.WithUserAgent("netem-probe"),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: KeepaliveTime, Timeout: KeepaliveTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: BackoffBase, Multiplier: 1.6, Jitter: 0.2, MaxDelay: BackoffMax},
			MinConnectTimeout: ConnectLimit,
		}),
	)
	if err != nil {
		return nil, fmt.Errorf("grpc: %w", err)
	}
	return c, nil
}

func (c *channel) dial(ctx context.Context, address string) (net.Conn, error) {
	l := &link{socket: probe.NewSocket(), done: make(chan struct{}), began: probe.Now()}
	defer close(l.done)
	c.mu.Lock()
	c.made++
	if c.once && c.made > 1 {
		c.mu.Unlock()
		return nil, probe.ErrOneConnection
	}
	c.last = l
	c.mu.Unlock()
	raw, err := l.socket.Dial(ctx, "tcp", address)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		l.err = err
		l.socket.Record(&l.failed)
		return nil, err
	}
	l.connected = probe.Now()
	made := &connection{Conn: raw, link: l, channel: c}
	c.links[local(raw)] = l
	return made, nil
}

// connection remembers how it ended, which the library says in words.
type connection struct {
	net.Conn
	link    *link
	channel *channel
}

func (c *connection) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.link.end.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (c *connection) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		c.link.end.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (c *connection) Close() error {
	c.link.end.CompareAndSwap(nil, &net.ErrClosed)
	c.channel.mu.Lock()
	delete(c.channel.links, local(c.Conn))
	c.channel.mu.Unlock()
	return c.Conn.Close()
}

func local(c net.Conn) netip.AddrPort {
	t, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// used is the connection of a call: the one that its header went out by, or else the try
// that it waited for. It may be nil.
func (c *channel) used(t *times, own bool) *link {
	if l := t.link.Load(); l != nil {
		return l
	}
	c.mu.Lock()
	l := c.last
	c.mu.Unlock()
	if l != nil && !own && l.began < t.start && l.finished() && l.err == nil && l.end.Load() == nil {
		return nil // it stands, and the call did not come as far
	}
	return l
}

func (l *link) finished() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// close ends the channel. The library's goodbye waits for a connection that is stuck, so one
// that is not well is cut off first, and any other soon.
func (c *channel) close(well bool) {
	c.mu.Lock()
	c.made++ // none is to come
	c.once = true
	var open []net.Conn
	for _, l := range c.links {
		open = append(open, l.socket.Conn())
	}
	last := c.last
	c.mu.Unlock()
	cut := func() {
		for _, raw := range open {
			_ = raw.Close()
		}
	}
	if !well {
		cut()
	}
	late := time.AfterFunc(closeLimit, cut)
	_ = c.cc.Close() // nobody waits for anything of it
	if !late.Stop() || well {
		cut()
	}
	if last != nil { // a connect ends with its context, and has an account to give back
		select {
		case <-last.done:
		case <-time.After(closeLimit):
		}
	}
}

// record writes the connection's account.
func (l *link) record(s *probe.Sample, t *times) {
	switch {
	case l == nil:
		return
	case !l.finished(): // it goes on, for other calls
		return
	case l.err != nil:
		s.Local, s.Info = l.failed.Local, l.failed.Info
		return
	case l.socket.Conn() == nil:
		return
	}
	l.socket.Share(s, t.before)
	if l.began >= t.start {
		s.Reused, s.ConnectNS, s.Made = false, l.socket.ConnectNS(), l.socket.Made()
	}
}

// class is what the connection's end, or the failure to make one, was.
func (l *link) class() probe.Class {
	if l == nil || !l.finished() {
		return probe.Other
	}
	if l.err != nil {
		if errors.Is(l.err, context.Canceled) {
			return probe.Other
		}
		return probe.Classify(l.err)
	}
	if end := l.end.Load(); end != nil {
		return probe.Classify(*end)
	}
	return probe.Other
}
