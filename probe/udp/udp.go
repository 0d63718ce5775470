// Package udp is the probe of single packets: each call is one numbered packet to an echo
// server, which stamps it. It tells loss, lateness, reordering, duplicates, and, where
// both ends read one clock, the delay of each direction.
package udp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"netemd/probe"
)

// DefaultBytes is the default of Probe.Bytes.
const DefaultBytes = 64

// Probe sends numbered packets from one socket, so that all are one flow. Fields are set
// before the first call and not changed; Call is safe for concurrent use. Nothing is sent
// twice. A packet without an answer in its call's budget is a timeout, whatever comes
// later; what came later is in Datagrams.
type Probe struct {
	// Address of the server, an IP address and a port: Serve, as in a lab's service of kind
	// echo.
	Address netip.AddrPort
	// Bytes of payload, 52..65,000; default 64. What is longer than the path's MTU is
	// sent in fragments, any of which loses the packet.
	Bytes int

	mu      sync.Mutex
	opened  bool
	err     error
	conn    *net.UDPConn
	raw     syscall.RawConn
	local   netip.AddrPort
	remote  netip.AddrPort
	session uint32
	buffer  []byte
	next    uint32
	pending map[uint32]*question
	book    book
	counted chan Packet
	reading sync.WaitGroup
	limits  probe.Deadlines // of the calls that are started: see Start
	cutting atomic.Bool
}

// result is what ended a call before its budget did.
type result struct {
	at     int64
	answer probe.Datagram
	err    error
}

var (
	errClosed = errors.New("the probe is closed")
	errLost   = errors.New("udp: no answer")
)

// Call sends one packet and waits for its answer. It returns as soon as ctx ends.
func (p *Probe) Call(ctx context.Context, seq int) probe.Sample {
	s := probe.Sample{Seq: seq, Remote: p.Address, StartNS: probe.Now()}
	q := &question{answer: make(chan result, 1)}
	number, err := p.send(&s, q)
	if err == nil {
		select {
		case r := <-q.answer:
			err = p.answered(&s, r)
		case <-ctx.Done():
			if r, late := p.giveUp(number, q.answer); late { // it came at the same moment
				err = p.answered(&s, r)
			} else {
				err = fmt.Errorf("%w: %w", errLost, ctx.Err())
			}
		}
	}
	conclude(&s, err)
	return s
}

// answered enters what ended a call.
func (p *Probe) answered(s *probe.Sample, r result) error {
	s.EndNS = r.at
	if r.err == nil {
		s.UDP, s.Bytes, s.Turns = &r.answer, int64(p.bytes()), 1
	}
	return r.err
}

// conclude says how a call ended.
func conclude(s *probe.Sample, err error) {
	if s.EndNS == 0 {
		s.EndNS = probe.Now()
	}
	if s.Class = probe.Classify(err); err != nil {
		s.Error = err.Error()
	}
}

func (p *Probe) bytes() int {
	if p.Bytes == 0 {
		return DefaultBytes
	}
	return p.Bytes
}

// open makes the socket, once. The caller holds mu.
func (p *Probe) open() error {
	if p.opened {
		return p.err
	}
	p.opened = true
	p.err = func() error {
		if n := p.bytes(); n < MinBytes || n > MaxBytes {
			return fmt.Errorf("udp: %d bytes: want %d to %d", n, MinBytes, MaxBytes)
		}
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(p.Address))
		if err != nil {
			return err
		}
		_ = c.SetReadBuffer(4 << 20) // a burst is the network's to lose; the kernel may allow less
		if p.raw, err = c.SyscallConn(); err != nil {
			return errors.Join(err, c.Close())
		}
		p.conn, p.local, p.remote = c, address(c.LocalAddr()), address(c.RemoteAddr())
		p.session, p.buffer = uint32(probe.Now()), make([]byte, p.bytes()) // a name, beside the port
		p.pending, p.counted = map[uint32]*question{}, make(chan Packet, 1)
		p.reading.Go(p.read)
		return nil
	}()
	return p.err
}

func address(a net.Addr) netip.AddrPort {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := u.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// send gives the packet its number as it goes, so that numbers are in order on the wire.
func (p *Probe) send(s *probe.Sample, q *question) (uint32, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.open(); err != nil {
		return 0, err
	}
	s.Local, s.Remote = p.local, p.remote
	number := p.next
	s.StartNS = probe.Now()
	err := p.write(Packet{Kind: Question, Session: p.session, Seq: number, Clock: ClockName(), SentNS: s.StartNS})
	if err != nil {
		return 0, fmt.Errorf("udp: send: %w", err)
	}
	p.next++
	p.book.sent++
	if q.number, p.pending[number] = number, q; q.answer == nil {
		p.limits.Add(&q.limit, q.until)
	}
	return number, nil
}

// write sends at once or not at all: a full send buffer must not hold up other calls.
// What an earlier packet met is reported by the next write; that is not this one's.
func (p *Probe) write(packet Packet) error {
	packet.Put(p.buffer)
	var err error
	for range 2 {
		rawErr := p.raw.Write(func(fd uintptr) bool {
			_, err = syscall.Write(int(fd), p.buffer)
			return true
		})
		if rawErr != nil {
			return rawErr
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		p.fail(err)
	}
	return err
}

// fail ends the calls that are under way: an ICMP error does not say which packet it is
// about, and means all of them. The caller holds mu.
func (p *Probe) fail(err error) {
	now := probe.Now()
	for number, q := range p.pending {
		delete(p.pending, number)
		q.end(result{at: now, err: fmt.Errorf("udp: %w", err)})
	}
}

// giveUp ends the wait for an answer, unless it has just come.
func (p *Probe) giveUp(number uint32, answer chan result) (result, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pending, number)
	select {
	case r := <-answer:
		return r, true
	default:
		return result{}, false
	}
}

func (p *Probe) read() {
	b := make([]byte, 65_536)
	for {
		n, err := p.conn.Read(b)
		now := probe.Now()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			p.mu.Lock()
			p.fail(err)
			p.mu.Unlock()
			if !errors.Is(err, syscall.ECONNREFUSED) {
				time.Sleep(time.Millisecond) // what does not go away must not take a whole processor
			}
		default:
			if packet, err := Parse(b[:n]); err == nil && packet.Session == p.session {
				p.got(packet, now)
			}
		}
	}
}

func (p *Probe) got(packet Packet, now int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch packet.Kind {
	case Count:
		select {
		case p.counted <- packet:
		default:
		}
	case Answer, Overtaken:
		q := p.pending[packet.Seq]
		if d, first := p.book.enter(packet, now, q != nil); first && q != nil {
			delete(p.pending, packet.Seq)
			q.end(result{at: now, answer: d})
		}
	}
}

// Close closes the socket and ends the calls that are under way.
func (p *Probe) Close() error {
	p.mu.Lock()
	c := p.conn
	if !p.opened || p.err == nil {
		p.opened, p.err = true, errClosed
	}
	p.fail(errClosed)
	p.mu.Unlock()
	p.limits.Stop()
	if c == nil {
		return nil
	}
	err := c.Close()
	p.reading.Wait()
	return err
}

// Describe says how packets are sent.
func (p *Probe) Describe() map[string]string {
	return map[string]string{
		"payload_bytes": fmt.Sprint(p.bytes()), "flow": "one socket for all packets", "clock": "stamps of the programs, CLOCK_MONOTONIC",
	}
}
