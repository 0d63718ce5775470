package udp

import (
	"testing"

	"netemd/probe"
)

// TestAnotherLife: a server that begins anew counts from 1 again; its answers are no
// duplicates, and what it got before its restart is not lost.
func TestAnotherLife(t *testing.T) {
	var b book
	enter := func(life, seq, arrival uint32) (probe.Datagram, bool) {
		b.sent++
		return b.enter(Packet{Kind: Answer, Life: life, Seq: seq, Arrival: arrival, Distinct: arrival}, 10, true)
	}
	for i := range uint32(6) {
		life, arrival := uint32(7), i+1
		if i >= 4 {
			life, arrival = 9, i-3
		}
		if d, first := enter(life, i, arrival); !first || d.ReorderedBack || d.ReorderedThere || d.Arrival != arrival {
			t.Errorf("answer %d of life %d: %+v, first %t", i, life, d, first)
		}
	}
	if _, first := b.enter(Packet{Kind: Answer, Life: 9, Seq: 5, Arrival: 2, Distinct: 2}, 11, false); first {
		t.Error("a duplicate in the later life is none")
	}
	b.sent += 2 // lost on the way there
	want := probe.Datagrams{Sent: 8, Answered: 6, Lost: 2, LostThere: 2, DuplicatesBack: 1}
	if got := b.sum(Packet{Kind: Count, Life: 9, Arrival: 2, Distinct: 2}, true); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := b.sum(Packet{Kind: Count, Life: 11}, true); got != want { // and once more, before it got anything
		t.Errorf("a third life: %+v, want %+v", got, want)
	}
}

func TestLives(t *testing.T) {
	p := &Probe{Address: serve(t)}
	t.Cleanup(func() { _ = p.Close() })
	if s := <-begin(p, 0, 1e10); s.Class != probe.OK {
		t.Fatalf("sample %+v", s)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.book.last.Life == 0 {
		t.Error("a server's answer does not name its life")
	}
}
