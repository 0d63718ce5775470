package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"netemd/probe"
)

// chunkSize is how much is read or written at once; small payloads need less.
const chunkSize = 64 << 10

// atOnce is what any socket's buffers hold, so that it may be written before anything is
// read.
const atOnce = 8 << 10

// pattern is the payload: it repeats itself after a prime number of bytes, so that a
// shifted stream is noticed, and has no 0, with which a Header begins.
var pattern = func() []byte {
	const prime = 251
	b := make([]byte, chunkSize+prime)
	for i := range b {
		b[i] = byte(1 + i%prime)
	}
	return b
}()

// piece is the payload from an offset on, up to a chunk.
func piece(offset, left int) []byte {
	const prime = 251
	return pattern[offset%prime:][:min(left, chunkSize)]
}

func (l *link) buffer(n int) []byte {
	if n = min(n, chunkSize); len(l.chunk) < n {
		l.chunk = make([]byte, n)
	}
	return l.chunk[:n]
}

// echo sends the payload and wants it back unchanged.
func (p *Probe) echo(l *link, phases *probe.Phases, s *probe.Sample) error {
	n := p.bytes()
	phases.Begin(probe.PhaseSend)
	if n <= atOnce {
		if err := send(l, n); err != nil {
			return err
		}
		phases.Begin(probe.PhaseFirstByte)
		return receive(l, n, phases, s)
	}
	// a server that sends back while it reads would wait for us, and we for it
	sent := make(chan error, 1)
	go func() { sent <- send(l, n) }()
	phases.Begin(probe.PhaseFirstByte)
	err := receive(l, n, phases, s)
	if err != nil {
		_ = l.socket.Conn().Close() // ends the writing, too
	}
	if unsent := <-sent; err == nil {
		err = unsent
	}
	return err
}

func send(l *link, n int) error {
	for done := 0; done < n; {
		m, err := l.socket.Conn().Write(piece(done, n-done))
		if done += m; err != nil {
			return err
		}
	}
	return nil
}

// receive reads the payload. What arrived is in the sample also when not all did.
func receive(l *link, n int, phases *probe.Phases, s *probe.Sample) error {
	b := l.buffer(n)
	for got := 0; got < n; {
		m, err := l.socket.Conn().Read(b[:min(len(b), n-got)])
		if m > 0 && got == 0 {
			phases.Begin(probe.PhaseBody)
		}
		if err := check(b[:m], got); err != nil {
			return err
		}
		got += m
		s.Bytes = int64(got)
		if err != nil && got < n {
			return short(got, n, err)
		}
	}
	return nil
}

// check compares what came after some bytes with the payload.
func check(b []byte, after int) error {
	if !bytes.Equal(b, piece(after, len(b))) {
		return &probe.ProtocolError{Err: fmt.Errorf("tcp: what came back differs within %d bytes after byte %d", len(b), after)}
	}
	return nil
}

// short says why not all came back.
func short(got, n int, err error) error {
	if errors.Is(err, io.EOF) && got > 0 {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("tcp: %d of %d bytes came back: %w", got, n, err)
}

// upload sends to a sink, which says how much it got.
func (p *Probe) upload(l *link, phases *probe.Phases, s *probe.Sample) error {
	n := p.bytes()
	phases.Begin(probe.PhaseSend)
	if _, err := l.socket.Conn().Write(Header{Sink, uint64(n)}.Marshal()); err != nil {
		return err
	}
	if err := send(l, n); err != nil {
		return err
	}
	phases.Begin(probe.PhaseFirstByte)
	h, err := ReadHeader(l.socket.Conn())
	if err != nil {
		return err
	}
	if h.Way != Received || h.Bytes != uint64(n) {
		return &probe.ProtocolError{Err: fmt.Errorf("tcp: the sink says it has %d of %d bytes", h.Bytes, n)}
	}
	s.Bytes = int64(n)
	return nil
}

// download asks for the payload.
func (p *Probe) download(l *link, phases *probe.Phases, s *probe.Sample) error {
	n := p.bytes()
	phases.Begin(probe.PhaseSend)
	if _, err := l.socket.Conn().Write(Header{Source, uint64(n)}.Marshal()); err != nil {
		return err
	}
	phases.Begin(probe.PhaseFirstByte)
	return receive(l, n, phases, s)
}
