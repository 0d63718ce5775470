package udp

import (
	"time"

	"netemd/probe"
)

// book is the account of a run. Its size does not depend on how long that is: what
// comes more than history packets late is not told apart from what was never seen.
type book struct {
	sent, answered, late int
	backTwice            int
	there, back          int
	oneClock             bool
	// numbers and arrivals are those that came back.
	numbers, arrivals window
	latest            uint32
	last              Packet
	// of the lives of the server before the one of last, as far as its answers say
	before struct{ arrived, distinct uint32 }
}

// follow goes over to another life of the server: its counts begin anew. An answer of an
// earlier life that comes after one of a later life is told by nothing, and is an answer
// of a life of its own; that needs a restart within the time that a packet is on its way.
func (b *book) follow(p Packet) {
	if b.last.Kind != 0 && p.Life != b.last.Life {
		b.before.arrived += b.last.Arrival
		b.before.distinct += b.last.Distinct
		b.arrivals, b.latest, b.last = window{}, 0, Packet{}
	}
}

// enter takes an answer; first is false for what has been here before.
func (b *book) enter(p Packet, now int64, wanted bool) (d probe.Datagram, first bool) {
	b.follow(p)
	if !b.arrivals.add(p.Arrival) {
		b.backTwice++
		return d, false
	}
	if b.last.Kind == 0 || int32(p.Arrival-b.last.Arrival) > 0 {
		b.last = p
	}
	d.Arrival, d.HeldNS = p.Arrival, p.ReturnedNS-p.ReceivedNS
	if p.Clock != 0 && p.Clock == ClockName() {
		b.oneClock = true
		d.ThereNS, d.BackNS = p.ReceivedNS-p.SentNS, now-p.ReturnedNS
	}
	d.ReorderedThere = p.Kind == Overtaken
	if b.latest != 0 && int32(p.Arrival-b.latest) < 0 {
		d.ReorderedBack = true
	} else {
		b.latest = p.Arrival
	}
	if !b.numbers.add(p.Seq) { // a duplicate made on the way there, which the server counts
		return d, false
	}
	if d.ReorderedThere {
		b.there++
	}
	if d.ReorderedBack {
		b.back++
	}
	if wanted {
		b.answered++
	} else {
		b.late++
	}
	return d, true
}

// The end of a run: how long stragglers are waited for, and how often and how long the
// server is asked what it got.
const (
	stragglers = 200 * time.Millisecond
	queries    = 10
	queryLimit = 100 * time.Millisecond
)

// Datagrams asks the server what it has got, and says what became of all packets. It
// takes 0.2 s, and up to 1.2 s where the server does not answer.
func (p *Probe) Datagrams() probe.Datagrams {
	p.mu.Lock()
	ready := p.opened && p.err == nil
	p.mu.Unlock()
	if !ready {
		return probe.Datagrams{}
	}
	time.Sleep(stragglers)
	var (
		server Packet
		told   bool
	)
	for range queries {
		p.mu.Lock()
		_ = p.write(Packet{Kind: Query, Session: p.session, Seq: p.next}) // a lost query is asked again
		p.mu.Unlock()
		select {
		case server = <-p.counted:
			told = true
		case <-time.After(queryLimit):
			continue
		}
		break
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.book.sum(server, told)
}

// sum balances the account with what the server has told, or else with its last answer.
func (b *book) sum(server Packet, told bool) probe.Datagrams {
	d := probe.Datagrams{
		Sent: b.sent, Answered: b.answered, Late: b.late, Lost: b.sent - b.answered - b.late,
		DuplicatesBack: b.backTwice, ReorderedThere: b.there, ReorderedBack: b.back, OneClock: b.oneClock,
	}
	if b.last.Kind != 0 && told && server.Life != b.last.Life { // it began anew after its last answer
		b.follow(server)
	}
	if !told {
		server = b.last
	}
	server.Arrival += b.before.arrived
	server.Distinct += b.before.distinct
	d.DuplicatesThere = int(server.Arrival - server.Distinct)
	d.LostBack = min(max(int(int32(server.Distinct-uint32(b.answered+b.late))), 0), d.Lost) // counters go round
	if told {
		d.LostThere = d.Lost - d.LostBack
	}
	return d
}
