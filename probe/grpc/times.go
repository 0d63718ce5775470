package grpc

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/stats"

	"netemd/probe"
)

type timesKey struct{}

// times are the moments of a call, 0 for those that did not come. The library's
// goroutines tell them.
type times struct {
	start int64
	link  atomic.Pointer[link]
	// before is the account of a connection that stood already.
	before *probe.TCPInfo

	mu sync.Mutex
	// over: the sample is being made, and what comes later is not in it.
	over bool
	// header, sent and answered are when the header went out, the last message, and when
	// the first answer came. trailer: the server itself said how it ended.
	header, sent, answered int64
	trailer                bool
	// pushback is the trailer's.
	pushback int64
	out      bool
	turns    int
	events   []probe.PolicyEvent
	channel  *channel
}

// handler tells a call what the library does for it.
type handler struct{}

func (handler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (handler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (handler) HandleConn(context.Context, stats.ConnStats)                       {}
func (handler) HandleRPC(ctx context.Context, s stats.RPCStats) {
	t, _ := ctx.Value(timesKey{}).(*times)
	if t == nil {
		return
	}
	now := probe.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.over {
		return
	}
	switch s := s.(type) {
	case *stats.Begin:
		if s.IsTransparentRetryAttempt {
			t.events = append(t.events, probe.PolicyEvent{TimeNS: now, Policy: probe.PolicyTransport, Event: probe.EventReplayed})
		}
	case *stats.OutHeader:
		t.header, t.sent, t.answered = now, now, 0
		t.by(s.LocalAddr)
		t.out = true
	case *stats.OutPayload:
		if t.out = true; t.answered == 0 {
			t.sent = now
		}
	case *stats.InHeader:
		t.came(now)
	case *stats.InPayload:
		t.came(now)
	case *stats.InTrailer:
		t.came(now)
		t.trailer = true
		t.pushback = pushback(s.Trailer)
	}
}

// ask says that an answer is waited for, after the end of what is sent, which the library
// tells nobody.
func (t *times) ask() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.out = true
}

// came counts a turn where something was sent before.
func (t *times) came(now int64) {
	if t.answered == 0 {
		t.answered = now
	}
	if t.out {
		t.turns++
		t.out = false
	}
}

// by finds the connection that the header went out by. The caller holds mu.
func (t *times) by(local net.Addr) {
	a, ok := local.(*net.TCPAddr)
	if !ok || t.channel == nil {
		return
	}
	ap := a.AddrPort()
	t.channel.mu.Lock()
	l := t.channel.links[netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())]
	t.channel.mu.Unlock()
	if l == nil {
		return
	}
	t.link.Store(l)
	if l.began < t.start {
		t.before = l.socket.Info()
	}
}

func (t *times) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
}

// write makes phases of the moments, each to the next one or to the call's end.
func (t *times) write(s *probe.Sample, l *link) {
	s.Policy, s.Turns, s.PushbackNS = t.events, t.turns, t.pushback
	end := s.EndNS
	until := func(m int64) int64 {
		if m == 0 || m > end {
			return end
		}
		return m
	}
	phase := func(name string, from, to int64, turns int) {
		s.Phases = append(s.Phases, probe.Phase{Name: name, NS: max(to-from, 0), Turns: turns})
	}
	if l != nil && l.began >= t.start { // the call waited for this connection
		connected := end
		if l.finished() && l.connected != 0 {
			connected = until(l.connected)
		}
		phase(probe.PhaseConnect, l.began, connected, 0)
		if connected < end {
			settings := 0
			if t.header != 0 {
				settings = 1
				s.Turns++
			}
			phase(probe.PhaseSettings, connected, until(t.header), settings)
		}
	} else {
		phase(probe.PhasePool, t.start, until(t.header), 0)
	}
	if t.header == 0 {
		return
	}
	phase(probe.PhaseSend, t.header, until(t.sent), 0)
	if t.answered == 0 {
		phase(probe.PhaseFirstByte, t.sent, end, 0)
		return
	}
	phase(probe.PhaseFirstByte, t.sent, until(t.answered), 1)
	phase(probe.PhaseBody, t.answered, end, max(t.turns-1, 0))
}
