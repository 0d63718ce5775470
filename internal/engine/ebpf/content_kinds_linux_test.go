package ebpf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// distant gives the lab 1 ms on the way back, as a real path has: without any, a tail loss probe
// could not be told from a retransmission timeout.
func distant(t testing.TB, l *lab) {
	t.Helper()
	e := newEngine(t, Config{})
	set(t, e, l.peer, qdisc.Netem{Delay: ms})
}

// The third data segment of a connection is lost once: it is sent again once, and the
// record says which it was.
func TestDropThirdSegment(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		distant(t, l)
		s := l.serve(t, server4)
		p := l.place
		p.Match = s.tcp()
		r := content.Rule{Kind: content.Data, N: 3, Count: 1}
		// All packets are recorded on the way to the rule: what was set last comes first.
		all := content.Rule{Kind: content.Every, N: 1, Hold: content.MinHold}
		once := func(i int) string {
			rule(t, e, p, r)
			rule(t, e, p, all)
			defer clearRule(t, e, p, r)
			defer clearRule(t, e, p, all)
			c, _ := s.dial(t)
			defer c.Close()
			peer := s.accepted(t, c)
			segments(t, c, peer, 6)
			if said := waited(ruleCounters(t, e, p, r), ruleCounters(t, e, p, all)); said != "" {
				return said
			}
			got := ruleLogOf(t, e, p, r)
			if len(got.Records) != 1 || got.Chosen != 1 {
				t.Fatalf("run %d: %+v", i, got)
			}
			rec := got.Records[0]
			if rec.Segment != 3 || rec.Payload != 4 || rec.Segments != 1 || rec.Source != c.LocalAddr().String() || rec.Length < 44 {
				t.Errorf("run %d: %+v", i, rec)
			}
			again := retransmissions(t, c)
			var sent []uint32 // the sequence numbers of data, in the order of sending
			for _, one := range ruleLogOf(t, e, p, all).Records {
				if one.Payload > 0 {
					sent = append(sent, one.Sequence)
				}
			}
			// A machine that stands still for 200 ms has segments sent again for nothing.
			if again > 1 && len(sent) == 6+int(again) {
				return fmt.Sprintf("%d retransmissions: %d", again, sent)
			}
			if again != 1 || len(sent) != 7 || sent[2] != rec.Sequence || sent[3] != rec.Sequence || sent[4] != rec.Sequence+4 {
				t.Errorf("run %d: %d retransmissions, %d was dropped of %d", i, again, rec.Sequence, sent)
			}
			return ""
		}
		for i := range often() {
			undisturbed(t, func() string { return once(i) })
		}
	})
}

// A super-packet with the wanted segment is lost whole, the record says what it stood
// for, and so many segments are sent again.
func TestDropSuperPacket(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	distant(t, l)
	for _, server := range []string{server4, server6} {
		s := l.serve(t, server)
		p := l.place
		p.Match = s.tcp()
		const n = 60
		r := content.Rule{Kind: content.Data, N: n, Count: 1}
		data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10) // 1 MB
		var (
			c   *net.TCPConn
			log content.Log
		)
		undisturbed(t, func() string {
			rule(t, e, p, r)
			defer clearRule(t, e, p, r)
			c, _ = s.dial(t)
			peer := s.accepted(t, c)
			go func() { _, _ = c.Write(data) }()
			got := make([]byte, len(data))
			_ = peer.SetReadDeadline(time.Now().Add(slower(20 * time.Second)))
			if k, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes arrived, %v", k, err)
			}
			log = ruleLogOf(t, e, p, r)
			return waited(ruleCounters(t, e, p, r))
		})
		if len(log.Records) != 1 {
			t.Fatalf("%+v", log)
		}
		rec := log.Records[0]
		t.Logf("segment %d was among %d, %d bytes; %d were sent again", n, rec.Segments, rec.Payload, retransmissions(t, c))
		if rec.Segments < 2 || rec.Segment != n || rec.Payload < 1000*(rec.Segments-1) {
			t.Errorf("%+v", rec)
		}
		if again := retransmissions(t, c); again < rec.Segments {
			t.Errorf("%d segments were sent again, want %d or more", again, rec.Segments)
		}
	}
}

// Without a count every repetition of the segment is lost, and nothing else.
func TestDropSegmentForEver(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	distant(t, l)
	for _, server := range []string{server4, server6} {
		s := l.serve(t, server)
		p := l.place
		p.Match = s.tcp()
		r := content.Rule{Kind: content.Data, N: 2}
		rule(t, e, p, r)
		c, _ := s.dial(t)
		peer := s.accepted(t, c)
		segments(t, c, peer, 1)
		for range 3 { // these go together when they are sent again
			if _, err := c.Write([]byte("data")); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "three repetitions", slower(10*time.Second), func() bool { return ruleCounters(t, e, p, r).Lost >= 3 })
		_ = peer.SetReadDeadline(time.Now().Add(100 * ms))
		b := make([]byte, 16)
		if n, err := peer.Read(b); err == nil {
			t.Errorf("%d bytes arrived", n)
		}
		got := ruleLogOf(t, e, p, r)
		for _, rec := range got.Records {
			if rec.Segment != 2 || rec.Sequence != got.Records[0].Sequence {
				t.Errorf("%+v", rec)
			}
		}
		clearRule(t, e, p, r)
		_ = peer.SetReadDeadline(time.Now().Add(slower(10 * time.Second)))
		if n, err := io.ReadFull(peer, b[:12]); err != nil {
			t.Errorf("after the end: %d bytes, %v", n, err)
		}
	}
}

// Of a connection that was open before, the first segment seen is the first.
func TestOpenConnection(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	distant(t, l)
	s := l.serve(t, server4)
	p := l.place
	p.Match = s.tcp()
	c, _ := s.dial(t)
	peer := s.accepted(t, c)
	segments(t, c, peer, 5)
	r := content.Rule{Kind: content.Data, N: 2, Count: 1}
	rule(t, e, p, r)
	segments(t, c, peer, 1)
	if n := ruleCounters(t, e, p, r); n.Lost != 0 {
		t.Errorf("after one segment: %+v", n)
	}
	segments(t, c, peer, 1)
	if n := ruleCounters(t, e, p, r); n.Lost+n.Opened != 1 {
		t.Errorf("after two segments: %+v", n)
	}
}

// Whoever sends again what was lost loses it a second time: with both rules the
// connection waits for two timeouts. Rules on one flow stand side by side.
func TestDropRetransmission(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	distant(t, l)
	s := l.serve(t, server4)
	p := l.place
	p.Match = s.tcp()
	first := content.Rule{Kind: content.Data, N: 2, Count: 1}
	second := content.Rule{Kind: content.Retransmit, Count: 1}
	// What was set last sees packets first: the retransmissions must be looked for
	// before the first rule takes the original away.
	var (
		c    *net.TCPConn
		a, b content.Log
	)
	undisturbed(t, func() string {
		rule(t, e, p, first)
		rule(t, e, p, second)
		defer clearRule(t, e, p, first)
		defer clearRule(t, e, p, second)
		c, _ = s.dial(t)
		segments(t, c, s.accepted(t, c), 3)
		a, b = ruleLogOf(t, e, p, first), ruleLogOf(t, e, p, second)
		return waited(ruleCounters(t, e, p, first), ruleCounters(t, e, p, second))
	})
	if len(a.Records) != 1 || len(b.Records) != 1 || a.Records[0].Sequence != b.Records[0].Sequence || b.Records[0].Segment != 0 {
		t.Fatalf("%+v\n%+v", a, b)
	}
	if n := retransmissions(t, c); n != 2 {
		t.Errorf("%d retransmissions, want 2", n)
	}
}

// On the way back the second packet of the handshake is dropped, on either hook.
func TestDropSYNACK(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		s := l.serve(t, server4)
		p := l.peer
		if cfg.Clsact {
			p = l.at(t, l.client, target.Ingress)
		}
		p.Match = s.tcp().Reverse()
		r := content.Rule{Kind: content.SYNACK, Count: 1}
		var took time.Duration
		undisturbed(t, func() string {
			clearRule(t, e, p, r)
			rule(t, e, p, r)
			_, took = s.dial(t)
			return waited(ruleCounters(t, e, p, r))
		})
		got := ruleLogOf(t, e, p, r)
		if len(got.Records) != 1 || got.Records[0].Flags&0x12 != 0x12 || got.Records[0].Source != s.ln.Addr().String() {
			t.Errorf("%+v", got)
		}
		if took < 900*ms {
			t.Errorf("connect took %s", took)
		}
		if _, took := s.dial(t); took > 900*ms {
			t.Errorf("a second connect took %s", took)
		}
	})
}

// FIN and RST are chosen by their flag alone.
func TestDropEnds(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	s := l.serve(t, server4)
	p := l.place
	p.Match = s.tcp()
	fin, rst := content.Rule{Kind: content.FIN, Count: 1}, content.Rule{Kind: content.RST}
	rule(t, e, p, fin)
	rule(t, e, p, rst)
	c, _ := s.dial(t)
	peer := s.accepted(t, c)
	segments(t, c, peer, 2)
	start := time.Now()
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	_ = peer.SetReadDeadline(time.Now().Add(slower(5 * time.Second)))
	if n, err := peer.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read %d, %v", n, err)
	}
	if n := ruleCounters(t, e, p, fin); n.Opened == 0 && (n.Lost != 1 || time.Since(start) < 3*ms) {
		t.Errorf("fin: %+v, it came after %s", n, time.Since(start))
	}
	c, _ = s.dial(t)
	peer = s.accepted(t, c)
	segments(t, c, peer, 1)
	if err := c.SetLinger(0); err != nil { // close sends RST
		t.Fatal(err)
	}
	c.Close()
	until(t, "RST", slower(5*time.Second), func() bool { n := ruleCounters(t, e, p, rst); return n.Lost+n.Opened == 1 })
	if n := ruleCounters(t, e, p, rst); n.Opened == 0 {
		_ = peer.SetReadDeadline(time.Now().Add(50 * ms))
		if _, err := peer.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("the peer heard of it: %v", err)
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// missing sends datagrams and returns the numbers of those that are missing.
func missing(f *stream, n int) []uint64 {
	f.next = 0
	f.send(n, 64, 10*time.Microsecond)
	got := map[uint64]bool{}
	for _, a := range f.drain(50 * ms) {
		got[a.number] = true
	}
	var lost []uint64
	for i := range uint64(n) {
		if !got[i] {
			lost = append(lost, i)
		}
	}
	return lost
}

// Every hundredth packet is exactly that, again and again.
func TestDropEvery(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		l, e := newLab(t), newEngine(t, Config{})
		p := onPort(l.place)
		if hook == target.Ingress {
			p = onPort(l.at(t, l.server, target.Ingress))
		}
		for _, way := range []struct{ client, server string }{{client4, server4}, {client6, server6}} {
			if testing.Short() && (way.server == server4) != (hook == target.Egress) {
				continue
			}
			f := l.newFlow(t, way.client, way.server, 0, port)
			rules := []content.Rule{{Kind: content.Every, N: 100}, {Kind: content.Every, N: 7, Count: 3}, {Kind: content.Every, N: 1, Count: 5}, {Kind: content.Every, N: 1000}}
			if testing.Short() {
				rules = rules[:2]
			}
			for _, r := range rules {
				var lost, want []uint64
				var n fault.Counters
				undisturbed(t, func() string {
					clearRule(t, e, p, r)
					rule(t, e, p, r)
					lost = missing(f, 550)
					n = ruleCounters(t, e, p, r)
					return waited(n)
				})
				for k := uint64(r.N); k <= 550 && (r.Count == 0 || len(want) < int(r.Count)); k += uint64(r.N) {
					want = append(want, k-1)
				}
				if !slices.Equal(lost, want) || n.Seen != 550 || n.Lost != uint64(len(want)) {
					t.Errorf("%s: %s: lost %v, want %v; %+v", hook, r, lost, want, n)
				}
				log := ruleLogOf(t, e, p, r)
				if log.Chosen != uint64(len(want)) || len(log.Records) != len(want) {
					t.Errorf("%s: %s: %+v", hook, r, log)
				}
				for _, rec := range log.Records {
					if rec.Protocol != 17 || rec.Payload != 64 || rec.Flags != 0 || rec.Segment != 0 || rec.Destination != net.JoinHostPort(way.server, fmt.Sprint(port)) {
						t.Errorf("%+v", rec)
					}
				}
				clearRule(t, e, p, r)
			}
			f.out.Close()
			f.in.Close()
		}
	}
}

// An expression chooses by payload, and by connection.
func TestDropMatch(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	other := l.newFlow(t, client4, server4, 0, port+1)
	// The number is the first 8 bytes of the payload, the lowest first.
	r := content.Rule{Kind: content.Match, Expr: "udp && payload[0] & 0x0f == 5 && payload[1] == 0 && ip.len == 92"}
	undisturbed(t, func() string {
		rule(t, e, p, r)
		defer clearRule(t, e, p, r)
		got := missing(f, 60)
		said := waited(ruleCounters(t, e, p, r))
		if want := []uint64{5, 21, 37, 53}; !slices.Equal(got, want) && said == "" {
			t.Errorf("lost %v, want %v", got, want)
		}
		return said
	})

	p.Match = target.Match{}
	r.Count, r.PerConnection = 2, true
	undisturbed(t, func() string {
		clearRule(t, e, p, r)
		rule(t, e, p, r)
		var lost [4][]uint64
		for i, s := range []*stream{f, other, f, other} {
			lost[i] = missing(s, 60)
		}
		n := ruleCounters(t, e, p, r)
		if said := waited(n); said != "" {
			return said
		}
		want := [4][]uint64{{5, 21}, {5, 21}} // and nothing the second time
		if diff := cmp.Diff(want, lost); diff != "" || n.Lost != 4 {
			t.Errorf("%d lost, want 2 of each (-want +got):\n%s", n.Lost, diff)
		}
		return ""
	})
}

// A rule and 20 % loss stand side by side: the rule's own packet is dropped for certain.
func TestRuleBesideLoss(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	r := content.Rule{Kind: content.Every, N: 10}
	n := 2000
	var (
		lost []uint64
		c, d fault.Counters
	)
	undisturbed(t, func() string {
		clearRule(t, e, p, r)
		if err := e.Clear(ctx, p); err != nil {
			t.Fatal(err)
		}
		set(t, e, p, qdisc.Netem{Loss: 20, Seed: 3})
		rule(t, e, p, r)
		lost = missing(f, n)
		c, d = ruleCounters(t, e, p, r), counters(t, e, p)
		return waited(c, d)
	})
	gone := map[uint64]bool{}
	for _, k := range lost {
		gone[k] = true
	}
	for k := uint64(9); k < uint64(n); k += 10 {
		if !gone[k] {
			t.Errorf("packet %d arrived", k)
		}
	}
	if c.Seen != uint64(n) || c.Lost != uint64(n/10) || d.Seen != uint64(n-n/10) || uint64(len(lost)) != c.Lost+d.Lost {
		t.Errorf("%d lost; the rule: %+v, the loss: %+v", len(lost), c, d)
	}
	within(t, "lost beside the rule", int(d.Lost), int(d.Seen), 0.2)
	// Either ends by itself.
	clearRule(t, e, p, r)
	if got := missing(f, 500); len(got) < 50 || len(got) > 200 {
		t.Errorf("%d of 500 lost after the rule's end", len(got))
	}
	rule(t, e, p, r)
	if err := e.Clear(ctx, p); err != nil {
		t.Fatal(err)
	}
	if got := missing(f, 500); len(got) != 50 && ruleCounters(t, e, p, r).Opened == 0 {
		t.Errorf("%d of 500 lost after the loss's end", len(got))
	}
}

func TestRuleErrors(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	for _, tt := range []struct {
		rule content.Rule
		want string
	}{
		{content.Rule{}, "kind: want "},
		{content.Rule{Kind: content.Data}, `n "0": want `},
		{content.Rule{Kind: content.Match, Expr: "tcp.sin"}, "no field tcp.sin"},
	} {
		if err := e.SetContent(ctx, l.place, tt.rule, in(time.Minute)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.rule, err, tt.want)
		}
	}
	if len(e.places) != 0 {
		t.Errorf("%d places are left", len(e.places))
	}
}
