package http

import (
	"context"
	"crypto/tls"
	"net/http/httptrace"
	"sync/atomic"

	"netemd/probe"
)

// times are the moments of a call, 0 for those that did not come. The library's
// goroutines tell some of them.
type times struct {
	start, waited, given, dialed int64
	handshake, encrypted         atomic.Int64
	// turns are TLS's.
	turns                atomic.Int32
	asked, sent, answers atomic.Int64

	socket *probe.Socket
	before *probe.TCPInfo
}

// trace lets the library tell the moments; touch is told of those of the answer.
func (t *times) trace(ctx context.Context, touch func()) context.Context {
	once := func(at *atomic.Int64) { at.CompareAndSwap(0, probe.Now()) }
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		TLSHandshakeStart: func() { once(&t.handshake) },
		TLSHandshakeDone: func(tls.ConnectionState, error) {
			once(&t.encrypted)
			if t.socket != nil {
				t.turns.Store(int32(t.socket.Turns()))
			}
		},
		WroteRequest:         func(httptrace.WroteRequestInfo) { once(&t.sent); touch() },
		GotFirstResponseByte: func() { once(&t.answers); touch() },
	})
}

// write makes phases of the moments, each to the next one or to the call's end.
func (t *times) write(s *probe.Sample, c *conn) {
	end := s.EndNS
	until := func(moments ...int64) int64 {
		for _, m := range moments {
			if m != 0 {
				return min(m, end)
			}
		}
		return end
	}
	phase := func(name string, from, to int64, turns int) {
		if from != 0 {
			s.Phases = append(s.Phases, probe.Phase{Name: name, NS: max(to-from, 0), Turns: turns})
		}
	}
	handshake, encrypted, asked, sent, answers := t.handshake.Load(), t.encrypted.Load(), t.asked.Load(), t.sent.Load(), t.answers.Load()
	if answers != 0 && sent > answers { // the writer says so when the reader has seen the answer already
		sent = answers
	}
	phase(probe.PhasePool, t.waited, until(t.given), 0)
	if t.dialed != 0 {
		connected := end
		if c != nil && c.socket.ConnectNS() != 0 {
			connected = t.dialed + c.socket.ConnectNS()
		}
		phase(probe.PhaseConnect, t.dialed, connected, 0)
	}
	phase(probe.PhaseTLS, handshake, until(encrypted), int(t.turns.Load()))
	phase(probe.PhaseSend, asked, until(sent, answers), 0)
	s.Turns = int(t.turns.Load())
	if answers != 0 {
		s.Turns++
	}
	if sent != 0 || answers != 0 {
		phase(probe.PhaseFirstByte, until(sent, answers), until(answers), min(int(answers), 1))
	}
	phase(probe.PhaseBody, answers, end, 0)
}
