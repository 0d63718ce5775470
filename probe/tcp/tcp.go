// Package tcp is the probe of TCP servers: the handshake alone, an echo, or a transfer
// whose goodput counts.
//
// Connect works with every server, Echo with every one that sends back what it gets.
// Bulk and Download speak the few bytes of Header, which a lab's service of kind echo
// understands.
package tcp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"netemd/probe"
)

// The modes of a Probe.
const (
	Connect  = "connect"
	Echo     = "echo"
	Bulk     = "bulk"
	Download = "download"
)

// Defaults of Probe.Bytes.
const (
	DefaultEchoBytes = 64
	DefaultBulkBytes = 1 << 20
)

// Probe calls a TCP server. Fields are set before the first call and not changed; Call
// is safe for concurrent use. Nothing but the call's budget ends a call: TCP keep-alive is
// off and TCP_USER_TIMEOUT unset. No call is tried again, and none makes a second
// connection.
type Probe struct {
	// Address of the server, an IP address and a port.
	Address netip.AddrPort
	// Mode is Connect (default), Echo, Bulk (to the server, until it says that it has all)
	// or Download (from it).
	Mode string
	// Bytes of payload, 1..1 GiB; default 64 for Echo, 1 MiB for Bulk and Download.
	Bytes int
	// Keep uses connections again, the last one first; not for Connect. A connection is not
	// checked before it is used: the call that finds it broken fails, and the next one
	// makes another.
	Keep bool

	mu     sync.Mutex
	idle   []*link
	closed bool

	// of the calls that are started: see Start
	lines   []*line
	limits  probe.Deadlines
	making  sync.WaitGroup
	reading sync.WaitGroup
	cutting atomic.Bool
	whole   context.Context //nolint:containedctx // of the connections that are being made, until CutOff
	cut     context.CancelFunc
}

// link is a connection, and what watches over it.
type link struct {
	socket *probe.Socket
	chunk  []byte
}

var errClosed = errors.New("the probe is closed")

// Call makes one call. It returns at most 200 ms after ctx ends.
func (p *Probe) Call(ctx context.Context, seq int) probe.Sample {
	s := probe.Sample{Seq: seq, Remote: p.Address}
	l, err := p.take()
	s.StartNS = probe.Now()
	if err == nil {
		err = p.call(ctx, l, &s)
	}
	if s.EndNS == 0 {
		s.EndNS = probe.Now()
	}
	if s.Class = probe.Classify(err); err != nil {
		s.Error = err.Error()
	}
	return s
}

// call uses l, and keeps or closes it.
func (p *Probe) call(ctx context.Context, l *link, s *probe.Sample) error {
	err := p.converse(ctx, l, s)
	p.give(l, err == nil)
	return err
}

// converse makes a call on l.
func (p *Probe) converse(ctx context.Context, l *link, s *probe.Sample) error {
	phases := probe.Phases{Socket: l.socket}
	again := l.socket.Conn() != nil
	err := func() error {
		if again {
			l.socket.Begin()
		} else {
			phases.Begin(probe.PhaseConnect)
			if _, err := l.socket.Dial(ctx, "tcp", p.Address.String()); err != nil {
				return err
			}
			phases.EndAt(probe.Now())
		}
		if p.mode() == Connect {
			return nil
		}
		c := l.socket.Conn()
		deadline, _ := ctx.Deadline()
		if err := c.SetDeadline(deadline); err != nil {
			return err
		}
		stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
		err := p.exchange(l, &phases, s)
		if !stop() && err == nil {
			err = ctx.Err() // its deadline is set by now, which the next call must not find
		}
		return err
	}()
	s.EndNS = probe.Now()
	s.Phases = phases.End(s.EndNS)
	l.socket.Record(s)
	return err
}

func (p *Probe) exchange(l *link, phases *probe.Phases, s *probe.Sample) error {
	switch p.mode() {
	case Echo:
		return p.echo(l, phases, s)
	case Bulk:
		return p.upload(l, phases, s)
	case Download:
		return p.download(l, phases, s)
	}
	return fmt.Errorf("tcp: mode %q: want connect, echo, bulk or download", p.Mode)
}

func (p *Probe) mode() string {
	if p.Mode == "" {
		return Connect
	}
	return p.Mode
}

func (p *Probe) bytes() int {
	switch {
	case p.Bytes > 0:
		return p.Bytes
	case p.mode() == Echo:
		return DefaultEchoBytes
	}
	return DefaultBulkBytes
}

// take gives a connection that is kept, or a new one that is not made yet.
func (p *Probe) take() (*link, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errClosed
	}
	if n := len(p.idle); n > 0 {
		l := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return l, nil
	}
	return &link{socket: probe.NewSocket()}, nil
}

func (p *Probe) give(l *link, good bool) {
	if l.socket.Conn() == nil {
		return
	}
	p.mu.Lock()
	keep := good && p.Keep && p.mode() != Connect && !p.closed
	if keep {
		p.idle = append(p.idle, l)
	}
	p.mu.Unlock()
	if !keep {
		_ = l.socket.Conn().Close() // the sample is taken
	}
}

// Close closes the kept connections. Calls after it fail.
func (p *Probe) Close() error {
	p.mu.Lock()
	idle, lines, cut := p.idle, p.lines, p.cut
	p.idle, p.lines, p.closed = nil, nil, true
	p.mu.Unlock()
	for _, l := range idle {
		_ = l.socket.Conn().Close() // nothing is on its way
	}
	for _, l := range lines {
		_ = l.link.socket.Conn().Close()
	}
	if cut != nil {
		cut()
	}
	p.limits.Stop()
	p.making.Wait()
	p.reading.Wait()
	return nil
}

// Describe says how connections are used.
func (p *Probe) Describe() map[string]string {
	d := map[string]string{
		"mode": p.mode(), "tcp_keepalive": "off", "tcp_user_timeout": "off", "connections": "one for each call",
	}
	if p.mode() != Connect {
		d["payload_bytes"] = fmt.Sprint(p.bytes())
		if p.Keep {
			d["connections"] = "kept, last used first, not checked before use"
		}
	}
	return d
}
