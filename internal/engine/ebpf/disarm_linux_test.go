package ebpf

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"netemd/internal/content"
	"netemd/internal/target"
	"netemd/qdisc"
)

// While places are armed and taken away again and again in a flood, each packet arrives or
// is counted.
func TestDisarmLosesNothing(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		for _, hook := range []target.Hook{target.Egress, target.Ingress} {
			t.Run(string(hook), func(t *testing.T) {
				l, e := newLab(t), newEngine(t, cfg)
				p := onPort(l.place)
				if hook == target.Ingress {
					p = onPort(l.at(t, l.server, target.Ingress))
				}
				// On clsact the device stands still for a moment with the first filter and the
				// last one: a place that stays keeps it.
				keep := p
				keep.Match = target.Match{Include: []target.Flow{{Protocol: 17, DestinationPorts: target.Port(port + 1)}}}
				set(t, e, keep, qdisc.Netem{Loss: 1})
				p.Owned = false
				// A long way through the program is a long moment in which the place may go.
				p.Match.Include = nil
				for i := range 60 {
					p.Match.Include = append(p.Match.Include, target.Flow{
						Protocol: 17, SourcePorts: target.Port(uint16(i + 1)), DestinationPorts: target.Port(port),
					})
				}
				p.Match.Include = append(p.Match.Include, target.Flow{Protocol: 17, DestinationPorts: target.Port(port)})
				cycles := 200
				if testing.Short() || os.Getenv("NETEMD_TEST_LONG") != "1" {
					cycles = 12
				}
				if brief() {
					cycles = 3
				}
				f := l.newFlow(t, client4, server4, 0, port)
				var stop atomic.Bool
				done := make(chan struct{})
				go func() {
					defer close(done)
					for !stop.Load() {
						f.send(50, 64, 10*time.Microsecond)
					}
				}()
				counted := uint64(0)
				for range cycles {
					set(t, e, p, qdisc.Netem{Delay: time.Microsecond})
					e.mu.Lock()
					pl := e.places[p.Key()]
					q := pl.queue
					e.mu.Unlock()
					time.Sleep(2 * ms)
					if err := e.Clear(ctx, p); err != nil {
						t.Fatal(err)
					}
					until(t, "gone", slower(5*time.Second), pl.disarmed)
					counted += q.overflow.Load() + q.tapDropped.Load()
				}
				stop.Store(true)
				<-done
				got := len(f.collect(int(f.next)))
				t.Logf("%d packets, %d arrived, %d counted", f.next, got, counted)
				if uint64(got)+counted != f.next {
					t.Errorf("%d of %d arrived, %d are counted", got, f.next, counted)
				}
			})
		}
	})
}

// Clear does not wait for packets that are not due, nor for what the kernel takes its time
// over: what it returns after passes at once, and everything goes a little later.
func TestClearDoesNotWait(t *testing.T) {
	needTCX(t)
	const late = 800 * ms
	undisturbed(t, func() string {
		l, e := newLab(t), newEngine(t, Config{})
		p := onPort(l.place)
		p.Owned = false
		before := l.links(t, l.client)
		f := l.newFlow(t, client4, server4, 0, port)
		set(t, e, p, qdisc.Netem{Delay: late})
		f.send(20, 64, 0)
		c := counters(t, e, p)
		if err := e.Clear(ctx, p); err != nil {
			t.Fatal(err)
		}
		cleared := now()
		f.send(20, 64, 0)
		got := f.collect(40)
		if said := waited(c); said != "" {
			return said
		}
		if len(got) != 40 {
			t.Fatalf("%d of 40 arrived", len(got))
		}
		for _, a := range got {
			switch {
			case a.number < 20 && a.delay() < late:
				t.Errorf("packet %d came after %s", a.number, a.delay())
			case a.number < 20 && a.at < cleared:
				return "the machine stood still until all were due"
			case a.number >= 20 && a.delay() > late/2:
				return "a packet that nobody delays took " + a.delay().String()
			}
		}
		until(t, "everything is gone", slower(5*time.Second), func() bool { return l.links(t, l.client) == before })
		return ""
	})
}

// Rules that hold overlap with one another for more often than there are marks for them.
func TestRanksComeBack(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.at(t, l.server, target.Ingress))
	n, before := 620, 0
	if testing.Short() || os.Getenv("NETEMD_TEST_LONG") != "1" {
		n, before = 20, maxMarks-10
	}
	if brief() {
		n, before = 8, maxMarks-4
	}
	at := func(i int) content.Rule {
		return content.Rule{Kind: content.Every, N: uint32(1_000_000 + i), Hold: ms}
	}
	start := time.Now()
	for i := range n {
		if err := e.SetContent(ctx, p, at(i), in(time.Minute)); err != nil {
			t.Fatalf("rule %d: %v", i, err)
		}
		if i == 0 { // as if others had come and gone before
			h := e.places[contentKey(p, at(0))].hook
			h.mu.Lock()
			h.rank, h.mark = h.rank+uint32(before), h.mark+uint32(before)
			h.mu.Unlock()
		}
		if i > 1 {
			clearRule(t, e, p, at(i-2))
		}
	}
	t.Logf("%d rules in %s", n, time.Since(start))
	last := content.Rule{Kind: content.Every, N: 2, Hold: ms}
	rule(t, e, p, last)
	f := l.newFlow(t, client4, server4, 0, port)
	f.send(100, 64, ms)
	got := len(f.collect(100))
	c, behind := ruleCounters(t, e, p, last), ruleCounters(t, e, p, at(n-1))
	if got != 100 || c.Opened == 0 && c.Delayed != 50 || c.Seen != 100 || behind.Seen != 100 {
		t.Errorf("%d of 100 arrived: %+v; behind it: %+v", got, c, behind)
	}
}

// Impairments whose queues take their time to go do not keep new ones from coming.
func TestManyAtOnce(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := l.at(t, l.server, target.Ingress)
	f := l.newFlow(t, client4, server4, 0, port)
	n := 80
	if brief() {
		n = 10
	}
	for i := range n {
		r := content.Rule{Kind: content.Every, N: 1, Hold: 300*ms + time.Duration(i)}
		p.Match = target.Match{Include: []target.Flow{{Protocol: 17, DestinationPorts: target.Port(port)}}}
		if err := e.SetContent(ctx, p, r, in(time.Minute)); err != nil {
			t.Fatalf("rule %d: %v", i, err)
		}
		f.send(1, 64, 0)
		clearRule(t, e, p, r)
	}
	if got := f.collect(n); len(got) != n {
		t.Errorf("%d of %d arrived", len(got), n)
	}
}
