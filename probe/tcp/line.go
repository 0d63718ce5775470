package tcp

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"netemd/probe"
)

// Startable reports whether Start makes the calls as Call does: small echoes over kept
// connections, which a write begins and which one goroutine for each connection reads.
func (p *Probe) Startable() bool {
	return p.mode() == Echo && p.Keep && p.bytes() <= atOnce
}

// line is a kept connection with somebody who reads, whether or not a call is under way.
type line struct {
	probe *Probe
	link  *link
	limit probe.Deadline

	mu     sync.Mutex
	broken error // what the next call will find
	// of the call under way
	busy            bool
	sample          probe.Sample
	got             int
	done            func(probe.Sample)
	sent, firstByte int64
}

// Start begins an echo on a connection that is free; see probe.Starter. Where none is, a
// goroutine makes one.
func (p *Probe) Start(s probe.Sample, until int64, done func(probe.Sample)) {
	s.Remote = p.Address
	p.mu.Lock()
	if p.whole == nil {
		p.whole, p.cut = context.WithCancel(context.Background())
		if p.cutting.Load() {
			p.cut()
		}
	}
	var l *line
	if n := len(p.lines); n > 0 && !p.closed {
		l = p.lines[n-1]
		p.lines = p.lines[:n-1]
	}
	whole := p.whole
	p.mu.Unlock()
	if l == nil {
		p.making.Go(func() { done(p.first(whole, s, until)) })
		return
	}
	l.begin(s, until, done)
}

// CutOff ends the calls that Start began.
func (p *Probe) CutOff() {
	p.cutting.Store(true)
	p.mu.Lock()
	if p.cut != nil {
		p.cut()
	}
	p.mu.Unlock()
	p.limits.Expire()
}

// first makes a call on a connection of its own, which becomes a line when all was well.
func (p *Probe) first(whole context.Context, s probe.Sample, until int64) probe.Sample {
	ctx, cancel := context.WithDeadline(whole, time.Now().Add(time.Duration(until-probe.Now())))
	defer cancel()
	l := &link{socket: probe.NewSocket()}
	s.StartNS = probe.Now()
	err := p.converse(ctx, l, &s)
	if s.Class = probe.Classify(err); err != nil {
		s.Error = err.Error()
	}
	p.keepLine(l, err == nil)
	return s
}

func (p *Probe) keepLine(l *link, good bool) {
	c := l.socket.Conn()
	if c == nil {
		return
	}
	good = good && c.SetDeadline(time.Time{}) == nil
	p.mu.Lock()
	keep := good && !p.closed
	if keep {
		x := &line{probe: p, link: l}
		x.limit.Expire = x.expired
		p.lines = append(p.lines, x)
		p.reading.Go(x.read)
	}
	p.mu.Unlock()
	if !keep {
		_ = c.Close() // the sample is taken
	}
}

// begin sends the payload. mu is held meanwhile: an answer may be there before the write
// returns.
func (l *line) begin(s probe.Sample, until int64, done func(probe.Sample)) {
	l.mu.Lock()
	l.link.socket.Begin()
	s.StartNS = probe.Now()
	l.sample, l.done, l.got, l.busy = s, done, 0, true
	l.sent, l.firstByte = 0, 0
	l.probe.limits.Add(&l.limit, until)
	err := l.broken
	if err == nil {
		if err = send(l.link, l.probe.bytes()); err == nil {
			l.sent = probe.Now()
		}
	}
	var ended func()
	if err != nil {
		ended = l.end(err, probe.Now())
	}
	l.mu.Unlock()
	if ended != nil {
		ended()
	}
	if l.probe.cutting.Load() { // it may have come between
		l.probe.limits.Expire()
	}
}

// read takes what comes until the connection ends.
func (l *line) read() {
	c, b := l.link.socket.Conn(), l.link.buffer(l.probe.bytes())
	for {
		n, err := c.Read(b)
		now := probe.Now()
		if !l.took(b[:n], err, now) {
			return
		}
	}
}

// took reports whether more may come.
func (l *line) took(b []byte, err error, now int64) bool {
	l.mu.Lock()
	n := l.probe.bytes()
	switch {
	case !l.busy:
		if err == nil {
			err = &probe.ProtocolError{Err: fmt.Errorf("tcp: %d bytes came that nobody had asked for", len(b))}
		}
		l.broken = err
		l.mu.Unlock()
		return false
	case l.got == 0 && len(b) > 0:
		l.firstByte = now
	}
	bad := check(b, l.got)
	l.got = min(l.got+len(b), n)
	switch {
	case bad != nil:
		err = bad
	case l.got == n:
		l.broken, err = err, nil
	case err != nil:
		err = short(l.got, n, err)
	default:
		l.mu.Unlock()
		return true
	}
	ended, alive := l.end(err, now), err == nil && l.broken == nil
	l.mu.Unlock()
	if ended != nil {
		ended()
	}
	return alive
}

// expired ends the call under way: its time is over, or it is cut off.
func (l *line) expired() {
	l.mu.Lock()
	ended := l.finish(fmt.Errorf("tcp: %d of %d bytes came back: %w", l.got, l.probe.bytes(), l.probe.over()), probe.Now())
	l.mu.Unlock()
	ended()
}

func (p *Probe) over() error {
	if p.cutting.Load() {
		return context.Canceled
	}
	return os.ErrDeadlineExceeded
}

// end ends the call under way, unless its deadline does. The caller holds mu, and calls
// what it gets without it.
func (l *line) end(err error, now int64) func() {
	if !l.probe.limits.Remove(&l.limit) {
		return nil
	}
	return l.finish(err, now)
}

func (l *line) finish(err error, now int64) func() {
	s, done := l.sample, l.done
	l.sample, l.done, l.busy = probe.Sample{}, nil, false
	s.EndNS, s.Bytes = now, int64(l.got)
	s.Phases = l.parts(s.StartNS, now)
	l.link.socket.Record(&s)
	if s.Class = probe.Classify(err); err != nil {
		s.Error = err.Error()
	}
	good := err == nil
	return func() {
		if good {
			l.probe.free(l)
		} else {
			_ = l.link.socket.Conn().Close()
		}
		done(s)
	}
}

// parts are the phases of a call that ended now, as Call's echo has them.
func (l *line) parts(start, now int64) []probe.Phase {
	out := make([]probe.Phase, 0, 3)
	if l.sent == 0 {
		return append(out, probe.Phase{Name: probe.PhaseSend, NS: now - start})
	}
	out = append(out, probe.Phase{Name: probe.PhaseSend, NS: l.sent - start})
	if l.firstByte == 0 {
		return append(out, probe.Phase{Name: probe.PhaseFirstByte, NS: max(0, now-l.sent)})
	}
	// on a short way the answer is there before the write returns
	return append(out,
		probe.Phase{Name: probe.PhaseFirstByte, NS: max(0, l.firstByte-l.sent), Turns: 1},
		probe.Phase{Name: probe.PhaseBody, NS: now - l.firstByte})
}

// free gives a line back.
func (p *Probe) free(l *line) {
	p.mu.Lock()
	keep := !p.closed
	if keep {
		p.lines = append(p.lines, l)
	}
	p.mu.Unlock()
	if !keep {
		_ = l.link.socket.Conn().Close()
	}
}
