package udp

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"netemd/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listen(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func serve(t *testing.T) netip.AddrPort {
	t.Helper()
	c := listen(t)
	done := make(chan struct{})
	go func() { defer close(done); _ = Serve(c) }()
	t.Cleanup(func() { _ = c.Close(); <-done })
	return address(c.LocalAddr())
}

// between passes packets to the server, and hands those of each direction to a function
// that sends them on, or not.
func between(t *testing.T, server netip.AddrPort, to, from func(n int, b []byte, send func([]byte))) netip.AddrPort {
	t.Helper()
	front := listen(t)
	back, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(server))
	if err != nil {
		t.Fatal(err)
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		client netip.AddrPort
	)
	wg.Go(func() {
		b := make([]byte, 2048)
		for i := 0; ; i++ {
			n, a, err := front.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			mu.Lock()
			client = a
			mu.Unlock()
			if k, err := Parse(b[:n]); err == nil && k.Kind == Query {
				_, _ = back.Write(b[:n])
				continue
			}
			to(i, append([]byte(nil), b[:n]...), func(p []byte) { _, _ = back.Write(p) })
		}
	})
	wg.Go(func() {
		b := make([]byte, 2048)
		for i := 0; ; i++ {
			n, err := back.Read(b)
			if err != nil {
				return
			}
			mu.Lock()
			a := client
			mu.Unlock()
			send := func(p []byte) { _, _ = front.WriteToUDPAddrPort(p, a) }
			if k, err := Parse(b[:n]); err == nil && k.Kind == Count {
				send(b[:n])
				continue
			}
			from(i, append([]byte(nil), b[:n]...), send)
		}
	})
	t.Cleanup(func() { _ = front.Close(); _ = back.Close(); wg.Wait() })
	return address(front.LocalAddr())
}

func pass(_ int, b []byte, send func([]byte)) { send(b) }

func call(t *testing.T, p *Probe, seq int, budget time.Duration) probe.Sample {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	return p.Call(ctx, seq)
}

func TestAnswer(t *testing.T) {
	at := serve(t)
	p := &Probe{Address: at, Bytes: 500}
	defer func() { _ = p.Close() }()
	for i := range 3 {
		s := call(t, p, i, 10*time.Second)
		if s.Class != probe.OK || s.Seq != i || s.UDP == nil || s.UDP.Arrival != uint32(i+1) || s.Bytes != 500 || s.Remote != at || !s.Local.IsValid() {
			t.Fatalf("%+v %+v", s, s.UDP)
		}
		u := s.UDP
		if runtime.GOOS == "linux" && (u.ThereNS <= 0 || u.BackNS <= 0 || u.HeldNS < 0 || u.ThereNS+u.BackNS+u.HeldNS != s.EndNS-s.StartNS) {
			t.Errorf("%d there, %d held, %d back, want the %d ns of the call", u.ThereNS, u.HeldNS, u.BackNS, s.EndNS-s.StartNS)
		}
	}
	want := probe.Datagrams{Sent: 3, Answered: 3, OneClock: runtime.GOOS == "linux"}
	if d := p.Datagrams(); d != want {
		t.Errorf("%+v, want %+v", d, want)
	}
}

// TestBalance: each thing that can happen to a packet, on a path that does exactly that.
func TestBalance(t *testing.T) {
	later := func(d time.Duration) func([]byte, func([]byte)) {
		return func(b []byte, send func([]byte)) { time.AfterFunc(d, func() { send(b) }) }
	}
	tests := []struct {
		name     string
		to, from func(n int, b []byte, send func([]byte))
		at       time.Duration
		want     probe.Datagrams
		late     func([]byte, func([]byte))
	}{
		{name: "lost there", to: func(n int, b []byte, send func([]byte)) {
			if n%5 != 2 {
				send(b)
			}
		}, from: pass, want: probe.Datagrams{Answered: 8, Lost: 2, LostThere: 2}},
		{name: "lost back", to: pass, from: func(n int, b []byte, send func([]byte)) {
			if n%5 != 2 {
				send(b)
			}
		}, want: probe.Datagrams{Answered: 8, Lost: 2, LostBack: 2}},
		{name: "the last ones lost back", to: pass, from: func(n int, b []byte, send func([]byte)) {
			if n < 7 {
				send(b)
			}
		}, want: probe.Datagrams{Answered: 7, Lost: 3, LostBack: 3}},
		{name: "all lost", to: func(int, []byte, func([]byte)) {}, from: pass, want: probe.Datagrams{Lost: 10, LostThere: 10}},
		{name: "twice there", to: func(n int, b []byte, send func([]byte)) {
			if send(b); n == 4 {
				send(b)
			}
		}, from: pass, want: probe.Datagrams{Answered: 10, DuplicatesThere: 1}},
		{name: "twice back", to: pass, from: func(n int, b []byte, send func([]byte)) {
			if send(b); n == 4 || n == 5 {
				send(b)
			}
		}, want: probe.Datagrams{Answered: 10, DuplicatesBack: 2}},
		{name: "late", to: func(n int, b []byte, send func([]byte)) {
			if n == 3 {
				later(400*time.Millisecond)(b, send)
			} else {
				send(b)
			}
		}, from: pass, want: probe.Datagrams{Answered: 9, Late: 1, ReorderedThere: 1}},
		{name: "late on the way back", to: pass, from: func(n int, b []byte, send func([]byte)) {
			if n == 3 {
				later(400*time.Millisecond)(b, send)
			} else {
				send(b)
			}
		}, want: probe.Datagrams{Answered: 9, Late: 1, ReorderedBack: 1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := &Probe{Address: between(t, serve(t), test.to, test.from)}
			defer func() { _ = p.Close() }()
			const budget = 300 * time.Millisecond
			failed := 0
			var wg sync.WaitGroup
			var mu sync.Mutex
			for i := range 10 {
				wg.Go(func() {
					if s := call(t, p, i, budget); s.Class == probe.Timeout {
						mu.Lock()
						failed++
						mu.Unlock()
					} else if s.Class != probe.OK {
						t.Errorf("%+v", s)
					}
				})
				time.Sleep(10 * time.Millisecond) // in order: the path tells them by their number
			}
			wg.Wait()
			w := test.want
			w.Sent, w.OneClock = 10, runtime.GOOS == "linux" && w.Answered > 0
			d := p.Datagrams()
			if d != w {
				t.Errorf("%+v, want %+v", d, w)
			}
			if failed != d.Late+d.Lost {
				t.Errorf("%d calls failed, %d late and %d lost", failed, d.Late, d.Lost)
			}
		})
	}
}

// TestRefused: an ICMP error ends the call that is under way, not the next one only.
func TestRefused(t *testing.T) {
	c := listen(t)
	at := address(c.LocalAddr())
	_ = c.Close()
	p := &Probe{Address: at}
	for i := range 3 {
		if s := call(t, p, i, 5*time.Second); s.Class != probe.Refused {
			t.Errorf("%+v, want refused", s)
		}
	}
	if d := p.Datagrams(); d.Lost != 3 || d.LostThere != 0 {
		t.Errorf("%+v", d)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if s := call(t, p, 9, time.Second); s.Class != probe.Other {
		t.Errorf("after Close: %+v", s)
	}
}

// TestAnotherClock: without a clock in common there are no one-way delays, and no guess.
func TestAnotherClock(t *testing.T) {
	at := between(t, serve(t), pass, func(_ int, b []byte, send func([]byte)) {
		k, _ := Parse(b)
		k.Clock++
		k.Put(b)
		send(b)
	})
	p := &Probe{Address: at}
	defer func() { _ = p.Close() }()
	s := call(t, p, 0, 10*time.Second)
	if s.Class != probe.OK || s.UDP.ThereNS != 0 || s.UDP.BackNS != 0 || p.Datagrams().OneClock {
		t.Errorf("%+v %+v", s, s.UDP)
	}
}

// TestOtherAddress: a server with several addresses answers from the one that was asked.
func TestOtherAddress(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("127.0.0.2 is an address on Linux")
	}
	for _, network := range []string{"udp4", "udp"} {
		c, err := net.ListenUDP(network, &net.UDPAddr{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); _ = Serve(c) }()
		p := &Probe{Address: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.2"), address(c.LocalAddr()).Port())}
		if s := call(t, p, 0, 10*time.Second); s.Class != probe.OK {
			t.Errorf("%s: %+v", network, s)
		}
		_ = p.Close()
		_ = c.Close()
		<-done
	}
}

func TestSessions(t *testing.T) {
	s := sessions{}
	from := netip.MustParseAddrPort("10.0.0.1:1")
	ask := func(session, seq uint32, kind Kind) Packet {
		p := Packet{Kind: kind, Session: session, Seq: seq, ReceivedNS: int64(seq)}
		if !s.answer(from, &p) {
			t.Fatalf("no answer to %+v", p)
		}
		return p
	}
	const first = 1<<32 - 2 // numbers go round
	for i, want := range []struct {
		seq      uint32
		kind     Kind
		distinct uint32
	}{{first, Answer, 1}, {first + 1, Answer, 2}, {1, Answer, 3}, {0, Overtaken, 4}, {1, Answer, 4}, {2, Answer, 5}} {
		if p := ask(7, want.seq, Question); p.Kind != want.kind || p.Distinct != want.distinct || p.Arrival != uint32(i+1) {
			t.Errorf("question %d: %c %+v, want %c", i, p.Kind, p, want.kind)
		}
	}
	if p := ask(7, 9, Query); p.Kind != Count || p.Arrival != 6 || p.Distinct != 5 {
		t.Errorf("count %+v", p)
	}
	for i := range uint32(2 * maxSessions) {
		ask(100+i, i, Question)
	}
	if len(s) != maxSessions {
		t.Errorf("%d sessions are remembered, want %d", len(s), maxSessions)
	}
	if s.answer(from, &Packet{Kind: Answer}) {
		t.Error("an answer was answered")
	}
}

func FuzzParse(f *testing.F) {
	b := make([]byte, MinBytes)
	Packet{Kind: Question, Session: 1, Seq: 2, Arrival: 3, Distinct: 4, Clock: 5, SentNS: 6, ReceivedNS: 7, ReturnedNS: 8}.Put(b)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Parse(b)
		if err != nil {
			return
		}
		again := make([]byte, MinBytes)
		p.Put(again)
		if string(again) != string(b[:MinBytes]) {
			t.Errorf("%x became %x", b[:MinBytes], again)
		}
	})
}

func BenchmarkCall(b *testing.B) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	go func() { _ = Serve(c) }()
	p := &Probe{Address: address(c.LocalAddr())}
	defer func() { _ = p.Close() }()
	b.ReportAllocs()
	for b.Loop() {
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		if s := p.Call(ctx, 0); s.Class != probe.OK {
			b.Fatal(s.Error)
		}
		cancel()
	}
}

func TestWindow(t *testing.T) {
	var w window
	for i, step := range []struct {
		n    uint32
		want bool
	}{
		{1<<32 - 1, true}, {1<<32 - 1, false}, {0, true}, {5, true}, {3, true}, {3, false}, {1<<32 - 1, false},
		{5 + history, true}, {5, true}, {6, true}, {6, false}, {5 + history - 1, true},
		{10 + 3*history, true}, {10 + 3*history, false}, {11 + 2*history, true}, {11 + 2*history, false},
	} {
		if got := w.add(step.n); got != step.want {
			t.Errorf("step %d: %d is new: %v, want %v", i, step.n, got, step.want)
		}
	}
}
