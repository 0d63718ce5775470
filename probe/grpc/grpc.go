// Package grpc is the probe of gRPC servers that have the service of package echo, as a
// lab's service of kind grpc-echo has.
package grpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"

	"netemd/probe"
	"netemd/probe/grpc/echo"
	"netemd/probe/policy"
)

// The modes of a Probe. Turns are those of a call on a connection that stands; HTTP/2's
// settings are one more on a new one.
const (
	// Unary is one message each way: 1 turn.
	Unary = "unary"
	// ServerStream is one message, and Messages back: 1 turn.
	ServerStream = "server_stream"
	// ClientStream is Messages, and one back: 1 turn.
	ClientStream = "client_stream"
	// Bidi is Messages, each sent when the one before was answered: a turn for each, and
	// one for the end.
	Bidi = "bidi"
)

// What a channel does by itself. A server may refuse pings that come more often than its
// own limit (five minutes by default): they are sent only while a call is under way and
// nothing has come for KeepaliveTime, so calls of less than that never meet it.
const (
	KeepaliveTime    = 10 * time.Second // the least that grpc-go allows
	KeepaliveTimeout = 5 * time.Second
	// A connect that failed is tried again after BackoffBase, 1.6 times as long each time,
	// up to BackoffMax, 20 % more or less; each has ConnectLimit. gRPC's own maximum is
	// two minutes, which would be measured instead of the network's recovery.
	BackoffBase  = 100 * time.Millisecond
	BackoffMax   = time.Second
	ConnectLimit = 5 * time.Second
)

// closeLimit bounds what a call may take beyond its budget to part from the server.
const closeLimit = 100 * time.Millisecond

// maxMessage is what a message may have besides its payload of 4 MiB.
const maxMessage = 5 << 20

// Probe calls a gRPC server, without TLS. Fields are set before the first call and not
// changed; Call is safe for concurrent use. Calls fail at once while there is no connection
// (no wait-for-ready), and none is tried again by a service config; what the library itself
// repeats, because no server can have seen it, is in the sample's Policy as "transport
// replayed". TCP keep-alive is off and TCP_USER_TIMEOUT unset.
type Probe struct {
	// Address of the server, an IP address and a port.
	Address netip.AddrPort
	// Mode is Unary (default), ServerStream, ClientStream or Bidi.
	Mode string
	// Messages of a stream, 1..1,000,000; default 10.
	Messages int
	// Bytes of each message, 0..4 MiB.
	Bytes int
	// New makes a channel for each call; otherwise all share one, which connects again by
	// itself.
	New bool

	once sync.Once
	text string
	err  error

	mu     sync.Mutex
	closed bool
	shared *channel
}

var errClosed = errors.New("the probe is closed")

// Call makes one call. It returns at most 200 ms after ctx ends.
func (p *Probe) Call(ctx context.Context, seq int) probe.Sample {
	p.once.Do(p.configure)
	s := probe.Sample{Seq: seq, Remote: p.Address, StartNS: probe.Now()}
	t := &times{start: s.StartNS}
	c, err := p.take()
	if err == nil {
		t.channel = c
		err = p.ask(ctx, c, t, &s)
	}
	s.EndNS = probe.Now()
	t.end()
	if c != nil {
		used := c.used(t, p.New)
		t.write(&s, used)
		err = told(err, t, used)
		if p.New {
			c.close(err == nil)
		}
		used.record(&s, t)
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = &probe.ClassError{Class: probe.Timeout, Err: err}
	}
	if s.Class = probe.Classify(err); err != nil {
		s.Error = err.Error()
	}
	return s
}

// take gives the channel of the call.
func (p *Probe) take() (*channel, error) {
	if p.err != nil {
		return nil, p.err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return nil, errClosed
	case p.New:
		return open(p.Address, true)
	case p.shared == nil:
		c, err := open(p.Address, false)
		if err != nil {
			return nil, err
		}
		p.shared = c
	}
	return p.shared, nil
}

// ask makes the call.
func (p *Probe) ask(ctx context.Context, c *channel, t *times, s *probe.Sample) error {
	ctx, cancel := context.WithCancel(context.WithValue(ctx, timesKey{}, t))
	defer cancel() // ends a stream that was left
	if key := policy.IdempotencyKey(ctx); key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, strings.ToLower(policy.HeaderIdempotencyKey), key)
	}
	client := echo.NewEchoClient(c.cc)
	question := &echo.Request{Text: p.text}
	switch p.mode() {
	case Unary:
		return p.check(s)(client.Unary(ctx, question))
	case ServerStream:
		question.Count = uint32(p.messages())
		stream, err := client.Expand(ctx, question)
		if err != nil {
			return err
		}
		for range p.messages() {
			if err := p.check(s)(stream.Recv()); err != nil {
				return err
			}
		}
		return ended(stream.Recv())
	case ClientStream:
		stream, err := client.Collect(ctx)
		if err != nil {
			return err
		}
		for range p.messages() {
			if err := stream.Send(question); err != nil {
				break // what it was is said by CloseAndRecv
			}
		}
		answer, err := stream.CloseAndRecv()
		if err == nil && int(answer.GetNumber()) != p.messages() {
			return wrong("grpc: %d messages were sent, %d arrived", p.messages(), answer.GetNumber())
		}
		return p.check(s)(answer, err)
	}
	stream, err := client.Exchange(ctx)
	if err != nil {
		return err
	}
	for range p.messages() {
		_ = stream.Send(question) // what it was is said by Recv
		if err := p.check(s)(stream.Recv()); err != nil {
			return err
		}
	}
	t.ask()
	_ = stream.CloseSend()
	return ended(stream.Recv())
}

// check takes an answer, and wants back what was sent.
func (p *Probe) check(s *probe.Sample) func(*echo.Reply, error) error {
	return func(r *echo.Reply, err error) error {
		if errors.Is(err, io.EOF) {
			return wrong("grpc: the stream ended early")
		}
		if err != nil {
			return err
		}
		s.Bytes += int64(len(r.GetText()))
		if r.GetText() != p.text {
			return wrong("grpc: %d bytes came back that are not those that were sent", len(r.GetText()))
		}
		return nil
	}
}

func ended(_ *echo.Reply, err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err == nil:
		return wrong("grpc: the stream goes on after its last message")
	}
	return err
}

func wrong(format string, args ...any) error {
	return &probe.ProtocolError{Err: fmt.Errorf(format, args...)}
}

func (p *Probe) configure() {
	p.text = strings.Repeat("x", p.Bytes)
	switch p.mode() {
	case Unary, ServerStream, ClientStream, Bidi:
	default:
		p.err = fmt.Errorf("grpc: mode %q: want unary, server_stream, client_stream or bidi", p.Mode)
	}
}

func (p *Probe) mode() string {
	if p.Mode == "" {
		return Unary
	}
	return p.Mode
}

func (p *Probe) messages() int {
	if p.Messages == 0 {
		return 10
	}
	return p.Messages
}

// Close closes the shared channel. Calls after it fail, and those under way end.
func (p *Probe) Close() error {
	p.mu.Lock()
	c := p.shared
	p.shared, p.closed = nil, true
	p.mu.Unlock()
	if c != nil {
		c.close(true)
	}
	return nil
}

// Describe says how channels behave.
func (p *Probe) Describe() map[string]string {
	d := map[string]string{
		"mode": p.mode(), "message_bytes": strconv.Itoa(p.Bytes), "tls": "off", "tcp_keepalive": "off", "tcp_user_timeout": "off",
		"wait_for_ready": "off", "retry": "none but of what no server can have seen", "channels": "one for all calls",
		"keepalive": fmt.Sprintf("a ping after %v without a frame, given up after %v more; only while a call is under way", KeepaliveTime, KeepaliveTimeout),
		"reconnect": fmt.Sprintf("after %v, 1.6 times as long each time, up to %v, 20 %% more or less; %v for each", BackoffBase, BackoffMax, ConnectLimit),
	}
	if p.New {
		d["channels"] = "one for each call"
	}
	if p.mode() != Unary {
		d["messages"] = strconv.Itoa(p.messages())
	}
	return d
}
