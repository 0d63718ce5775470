// Package http is the probe of HTTP/1.1 and HTTP/2 servers. It uses Go's own client
// connections one by one, without the transport around them: that one keeps connections and
// repeats requests by itself, which no sample would show.
package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"netemd/probe"
	"netemd/probe/policy"
)

// The versions of HTTP.
const (
	V1 = "1.1"
	V2 = "2"
)

// The defaults of the health check of HTTP/2.
const (
	DefaultPingAfter = 5 * time.Second
	DefaultPingLimit = 5 * time.Second
)

// closeLimit bounds what a call may take beyond its budget to part from the server.
const closeLimit = 100 * time.Millisecond

// Probe calls an HTTP server. Each call is one request, sent once, on one connection;
// redirects are not followed and nothing is compressed. An answer with a status of 400
// or more is of class server. Fields are set before the first call and not changed; Call
// is safe for concurrent use.
//
// TCP keep-alive is off and TCP_USER_TIMEOUT unset: nothing but the call's budget and
// ReadTimeout ends a call, and HTTP/2's pings a kept connection.
type Probe struct {
	// Address of the server, an IP address and a port.
	Address netip.AddrPort
	// Version is V1 (default) or V2: by prior knowledge, or by ALPN with TLS.
	Version string
	// Method, default GET, and Path, default "/".
	Method, Path string
	// Bytes of the request's body, 0..64 MiB.
	Bytes int
	// Keep uses connections again: of HTTP/1.1 one for each call at a time, the last used
	// first; of HTTP/2 one for all. One that the server has closed is not used, and is not
	// noticed in time when it does so just then: that call fails.
	Keep bool
	// ReadTimeout bounds the wait for each piece of the answer; 0: none.
	ReadTimeout time.Duration
	// TLS encrypts; the server's certificate is not checked.
	TLS bool
	// PingAfter and PingLimit are the health check of a connection of HTTP/2: a ping is sent
	// after so long without any frame, and the connection is given up when nothing comes
	// for so long after it. Go's own default is none, with which a connection whose path is
	// dead fails call after call for a quarter of an hour. Default 5 s each.
	PingAfter, PingLimit time.Duration

	once      sync.Once
	err       error
	transport *http.Transport
	scratch   sync.Pool

	mu     sync.Mutex
	closed bool
	idle   []*conn
	// shared is the one connection of kept HTTP/2; making is held by who makes it.
	shared *conn
	making chan struct{}
}

var (
	errClosed = errors.New("the probe is closed")
	errRead   = errors.New("http: nothing came within the read timeout")
)

// Call makes one call. It returns at most 200 ms after ctx ends.
func (p *Probe) Call(ctx context.Context, seq int) probe.Sample {
	p.once.Do(p.configure)
	s := probe.Sample{Seq: seq, Remote: p.Address, StartNS: probe.Now()}
	t := &times{start: s.StartNS}
	c, err := p.take(ctx, t)
	if err == nil {
		err = p.ask(ctx, c, t, &s)
	}
	s.EndNS = probe.Now()
	ended := c.ended() // before it is closed here
	t.write(&s, c)
	if c != nil {
		c.record(&s, t)
		p.give(c, err == nil || isStatus(err))
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = &probe.ClassError{Class: probe.Timeout, Err: err} // whatever its budget made of it
	}
	if s.Class = classify(err, c != nil && c.connected(), ended); err != nil {
		s.Error = err.Error()
	}
	return s
}

// ask sends the request and reads the answer.
func (p *Probe) ask(ctx context.Context, c *conn, t *times, s *probe.Sample) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer c.guard(ctx)()
	touch := func() {}
	if p.ReadTimeout > 0 {
		timer := time.AfterFunc(time.Hour, func() { cancel(errRead) })
		defer timer.Stop()
		touch = func() { timer.Reset(p.ReadTimeout) }
		if !c.share {
			c.watch(touch)
			defer c.watch(nil)
		}
	}
	t.asked.Store(probe.Now())
	req, err := p.request(t.trace(ctx, touch))
	if err != nil {
		return err
	}
	resp, err := c.http.RoundTrip(req)
	if err == nil {
		c.last = resp.Close
		err = p.read(resp, touch, s)
	}
	if err != nil && errors.Is(context.Cause(ctx), errRead) {
		err = &probe.ClassError{Class: probe.Timeout, Err: fmt.Errorf("%w of %v: %w", errRead, p.ReadTimeout, err)}
	}
	return err
}

// read takes the whole answer.
func (p *Probe) read(resp *http.Response, touch func(), s *probe.Sample) error {
	s.Marked = resp.Header.Get(policy.HeaderDegraded)
	s.Replay = resp.Header.Get(policy.HeaderIdempotencyReplay) == "true"
	buffer, _ := p.scratch.Get().(*[]byte)
	if buffer == nil {
		b := make([]byte, 32<<10)
		buffer = &b
	}
	defer p.scratch.Put(buffer)
	sum := digestOf(resp.Header)
	for {
		n, err := resp.Body.Read(*buffer)
		s.Bytes += int64(n)
		sum.write((*buffer)[:n])
		touch()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			_ = resp.Body.Close() // it is broken already
			return err
		}
	}
	_ = resp.Body.Close() // it is read
	if resp.StatusCode >= http.StatusBadRequest {
		s.PushbackNS = int64(retryAfter(resp.Header, time.Now()))
		return &statusError{resp.StatusCode}
	}
	return sum.check()
}

// request is the call's one. Its body cannot be rewound, so that nobody sends it again.
func (p *Probe) request(ctx context.Context) (*http.Request, error) {
	var body io.Reader
	if p.Bytes > 0 {
		body = &payload{left: p.Bytes}
	}
	scheme := "http"
	if p.TLS {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, p.Method, scheme+"://"+p.Address.String()+p.path(), body)
	if err != nil {
		return nil, fmt.Errorf("http: %w", err)
	}
	req.ContentLength = int64(p.Bytes)
	req.Header.Set("User-Agent", "netem-probe")
	if key := policy.IdempotencyKey(ctx); key != "" {
		req.Header.Set(policy.HeaderIdempotencyKey, key)
	}
	if until, ok := policy.DeadlineOf(ctx); ok {
		req.Header.Set(policy.HeaderTimeout, policy.GRPCTimeout(time.Until(until)))
	}
	return req, nil
}

func (p *Probe) path() string {
	if p.Path == "" {
		return "/"
	}
	return p.Path
}

// payload is so many digits 0.
type payload struct{ left int }

func (r *payload) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := min(len(b), r.left)
	for i := range b[:n] {
		b[i] = '0'
	}
	r.left -= n
	return n, nil
}

// configure prepares what all calls share.
func (p *Probe) configure() {
	p.making = make(chan struct{}, 1)
	if p.Version != "" && p.Version != V1 && p.Version != V2 {
		p.err = fmt.Errorf("http: version %q: want 1.1 or 2", p.Version)
		return
	}
	p.transport = &http.Transport{
		DialContext:            dial,
		DisableCompression:     true,
		MaxResponseHeaderBytes: 1 << 20,
		Protocols:              new(http.Protocols),
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: orDefault(p.PingAfter, DefaultPingAfter), PingTimeout: orDefault(p.PingLimit, DefaultPingLimit)},
		// what is measured is a path of a test, and its server has any certificate
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // see above
	}
	switch {
	case p.version() == V1:
		p.transport.Protocols.SetHTTP1(true)
	case p.TLS:
		p.transport.Protocols.SetHTTP2(true)
	default:
		p.transport.Protocols.SetUnencryptedHTTP2(true)
	}
}

func orDefault(d, or time.Duration) time.Duration {
	if d == 0 {
		return or
	}
	return d
}

func (p *Probe) version() string {
	if p.Version == "" {
		return V1
	}
	return p.Version
}

// Close closes the kept connections. Calls after it fail.
func (p *Probe) Close() error {
	p.mu.Lock()
	idle := p.idle
	if p.shared != nil {
		idle = append(idle, p.shared)
	}
	p.idle, p.shared, p.closed = nil, nil, true
	p.mu.Unlock()
	for _, c := range idle {
		c.close(true)
	}
	return nil
}

// Describe says how connections are used.
func (p *Probe) Describe() map[string]string {
	d := map[string]string{
		"version": p.version(), "request_bytes": strconv.Itoa(p.Bytes), "tcp_keepalive": "off", "tcp_user_timeout": "off",
		"replay": "none: each call is one request on one connection", "connections": "one for each call", "read_timeout": "none",
	}
	if p.ReadTimeout > 0 {
		d["read_timeout"] = p.ReadTimeout.String()
	}
	switch {
	case p.Keep && p.version() == V2:
		d["connections"] = "one for all calls at a time"
		d["http2_ping"] = fmt.Sprintf("after %v without a frame, given up after %v more", orDefault(p.PingAfter, DefaultPingAfter), orDefault(p.PingLimit, DefaultPingLimit))
	case p.Keep:
		d["connections"] = "kept, last used first, those that the server has closed are not used"
	}
	return d
}
