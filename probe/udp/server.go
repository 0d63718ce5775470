package udp

import (
	"crypto/rand"
	"encoding/binary"
	"net"
	"net/netip"

	"netemd/probe"
)

// maxSessions bounds what a server remembers; the one that was silent for longest is
// forgotten first.
const maxSessions = 1024

// Serve answers packets until the socket is closed, with the error of that: questions
// with stamps, what is no packet of a probe as it is. Answers are as long as their
// questions, and go out in the order in which these came in.
func Serve(c *net.UDPConn) error {
	_ = c.SetReadBuffer(4 << 20) // a burst is the network's to lose; the kernel may allow less
	keepSource(c)
	s, life := sessions{}, newLife()
	b, control := make([]byte, 65_536), make([]byte, sourceSize)
	for {
		n, about, _, from, err := c.ReadMsgUDPAddrPort(b, control)
		if err != nil {
			return err
		}
		now := probe.Now()
		if p, err := Parse(b[:n]); err == nil {
			p.ReceivedNS = now
			if !s.answer(from, &p) {
				continue
			}
			p.Life, p.ReturnedNS = life, probe.Now()
			p.Put(b)
		}
		_, _, _ = c.WriteMsgUDPAddrPort(b[:n], source(control[:about]), from) // a client that has gone is nobody to tell
	}
}

// newLife draws a life's name, never 0.
func newLife() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // it never fails
	return max(1, binary.NativeEndian.Uint32(b[:]))
}

type key struct {
	from    netip.AddrPort
	session uint32
}

// session is what a server has got of one client.
type session struct {
	arrived, distinct uint32
	latest            uint32
	seen              window
	at                int64
}

type sessions map[key]*session

// answer makes a question its answer; false for what wants none.
func (all sessions) answer(from netip.AddrPort, p *Packet) bool {
	k := key{from, p.Session}
	s := all[k]
	if s == nil {
		if p.Kind == Question && len(all) >= maxSessions {
			all.forget()
		}
		if s = (&session{}); p.Kind == Question {
			all[k] = s
		}
	}
	s.at = p.ReceivedNS
	switch p.Kind {
	case Question:
		p.Kind = Answer
		s.arrived++
		if s.seen.add(p.Seq) {
			s.distinct++
			if s.distinct > 1 && int32(p.Seq-s.latest) < 0 {
				p.Kind = Overtaken
			} else {
				s.latest = p.Seq
			}
		}
	case Query:
		p.Kind = Count
	default:
		return false
	}
	p.Arrival, p.Distinct, p.Clock = s.arrived, s.distinct, ClockName()
	return true
}

func (all sessions) forget() {
	var oldest key
	at := int64(-1)
	for k, s := range all {
		if at < 0 || s.at < at {
			oldest, at = k, s.at
		}
	}
	delete(all, oldest)
}

// history is how many numbers a window remembers; a multiple of 64.
const history = 1 << 16

// window remembers which of the last numbers of a counter that goes round were there.
type window struct {
	bits []uint64
	top  uint32
}

// add reports whether the number is new, or too old to know.
func (w *window) add(n uint32) bool {
	if w.bits == nil {
		w.bits, w.top = make([]uint64, history/64), n
	}
	ahead := int64(int32(n - w.top))
	switch {
	case ahead >= history:
		clear(w.bits)
	case ahead <= -history:
		return true
	default:
		for i := w.top + 1; int32(n-i) > 0; i++ {
			w.bits[i%history/64] &^= 1 << (i % 64)
		}
	}
	slot, bit := &w.bits[n%history/64], uint64(1)<<(n%64)
	if ahead > 0 {
		*slot &^= bit
		w.top = n
	}
	fresh := *slot&bit == 0
	*slot |= bit
	return fresh
}
