package ebpf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

const ms = time.Millisecond

// quick is the first decile of the delays: what the engine does when the machine
// lets it.
func quick(a []arrival) time.Duration {
	d := make([]time.Duration, 0, len(a))
	for _, x := range a {
		d = append(d, x.delay())
	}
	slices.Sort(d)
	if len(d) == 0 {
		return -1
	}
	return d[len(d)/10]
}

// least is the shortest delay.
func least(a []arrival) time.Duration {
	d := time.Duration(1<<63 - 1)
	for _, x := range a {
		d = min(d, x.delay())
	}
	return d
}

// onPort narrows a place to the test's flow, since the stack sends some packets of
// its own.
func onPort(p target.Place) target.Place {
	p.Match = target.Match{Include: []target.Flow{{Protocol: 17, DestinationPorts: target.Port(port)}}}
	return p
}

// set sets n at p.
func set(t testing.TB, e *Engine, p target.Place, n qdisc.Netem) {
	t.Helper()
	if err := e.Set(ctx, p, n, in(time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// counters are those of the fault at p.
func counters(t testing.TB, e *Engine, p target.Place) fault.Counters {
	t.Helper()
	st, err := e.Read(ctx, p)
	if err != nil {
		t.Fatal(err)
	}
	return st.Counters
}

// steady sets n at p and runs traffic, undisturbed.
func steady(t testing.TB, e *Engine, p target.Place, n qdisc.Netem, run func() []arrival) (got []arrival, c fault.Counters) {
	t.Helper()
	undisturbed(t, func() string {
		if err := e.Clear(ctx, p); err != nil {
			t.Fatal(err)
		}
		set(t, e, p, n)
		got = run()
		c = counters(t, e, p)
		return waited(c)
	})
	return got, c
}

func TestDelay(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			both(t, func(t *testing.T, cfg Config) {
				l, e := newLab(t), newEngine(t, cfg)
				p := onPort(l.place)
				if hook == target.Ingress {
					p = onPort(l.at(t, l.server, target.Ingress))
				}
				for _, way := range []struct{ client, server string }{{client4, server4}, {client6, server6}} {
					f := l.newFlow(t, way.client, way.server, 0, port)
					for _, d := range []time.Duration{20 * ms, 50 * ms} {
						got, c := steady(t, e, p, qdisc.Netem{Delay: d}, func() []arrival {
							f.send(100, 200, ms)
							return f.collect(100)
						})
						if len(got) != 100 {
							t.Errorf("delay %s: %d of 100 arrived", d, len(got))
						}
						t.Logf("delay %s: from %s, first decile %s", d, least(got), quick(got))
						if least(got) < d || quick(got) > d+slower(30*ms) {
							t.Errorf("delay %s: from %s, first decile %s", d, least(got), quick(got))
						}
						if c.Seen != 100 || c.Delayed != 100 {
							t.Errorf("delay %s: %+v", d, c)
						}
					}
					if err := e.Clear(ctx, p); err != nil {
						t.Fatal(err)
					}
					f.send(100, 200, ms)
					if m := quick(f.collect(100)); m > slower(30*ms) {
						t.Errorf("after clear: first decile %s", m)
					}
				}
			})
		})
	}
}

func TestJitterOvertakes(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	for _, shape := range []qdisc.Distribution{qdisc.Uniform, qdisc.Normal} {
		got, _ := steady(t, e, p, qdisc.Netem{Delay: 30 * ms, Jitter: 10 * ms, Distribution: shape}, func() []arrival {
			f.send(1000, 64, 100*time.Microsecond)
			return f.collect(1000)
		})
		if len(got) != 1000 {
			t.Errorf("%s: %d of 1000 arrived", shape, len(got))
		}
		if slices.IsSortedFunc(got, func(a, b arrival) int { return int(a.number) - int(b.number) }) {
			t.Errorf("%s: none overtook another", shape)
		}
		early, late := time.Hour, time.Duration(0)
		for _, a := range got {
			early, late = min(early, a.delay()), max(late, a.delay())
		}
		if early > 24*ms || late < 36*ms || early < 18*ms && shape == qdisc.Uniform {
			t.Errorf("%s: delays from %s to %s", shape, early, late)
		}
	}
}

func TestDuplicate(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	sent := fewer(5000)
	got, c := steady(t, e, p, qdisc.Netem{Duplicate: 10, Seed: 4}, func() []arrival {
		f.send(sent, 64, 20*time.Microsecond)
		return f.drain(150 * ms)
	})
	times := map[uint64]int{}
	for _, a := range got {
		times[a.number]++
	}
	if len(times) != sent || len(got) != sent+int(c.Duplicated) || int(c.Seen) != sent {
		t.Errorf("%d arrived, %d different ones, of %d; %+v", len(got), len(times), sent, c)
	}
	within(t, "duplicated", int(c.Duplicated), sent, .1)
}

func TestLossInTheQueue(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	sent := fewer(5000)
	got, c := steady(t, e, p, qdisc.Netem{Loss: 20, Delay: 5 * ms, Seed: 4}, func() []arrival {
		f.send(sent, 64, 20*time.Microsecond)
		return f.drain(150 * ms)
	})
	if int(c.Seen) != sent || int(c.Lost) != sent-len(got) || c.Overflow != 0 {
		t.Errorf("%d of %d arrived; %+v", len(got), sent, c)
	}
	within(t, "lost", int(c.Lost), sent, .2)
}

// Packets leave one after the other at the rate, counted with their Ethernet header.
func TestRate(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	const (
		sent, size = 100, 208
		frame      = size + 8 + 20 + 14
		rate       = 100_000 // bytes per second
		each       = frame * time.Second / rate
	)
	for _, n := range []qdisc.Netem{
		{Rate: rate},
		{Rate: 2 * rate, CellSize: frame / 2, CellOverhead: frame / 2},
		{Rate: rate, Delay: 40 * ms},
	} {
		n.Limit = sent
		got, c := steady(t, e, p, n, func() []arrival {
			f.next = 0
			f.send(sent, size, 0)
			return f.collect(sent)
		})
		if len(got) != sent || c.Overflow != 0 {
			t.Fatalf("%+v: %d of %d arrived: %+v", n, len(got), sent, c)
		}
		var late []arrival
		for i, a := range got {
			if a.number != uint64(i) {
				t.Fatalf("%+v: packet %d is number %d", n, i, a.number)
			}
			due := got[0].sent + int64(n.Delay) + int64(each)*int64(i+1)
			late = append(late, arrival{sent: due, at: a.at})
		}
		t.Logf("%+v: late from %s, first decile %s", n, least(late), quick(late))
		if least(late) < 0 || quick(late) > slower(30*ms) {
			t.Errorf("%+v: late from %s, first decile %s", n, least(late), quick(late))
		}
	}
	// A rate that is set later comes after what waits.
	got, _ := steady(t, e, p, qdisc.Netem{Delay: 100 * ms}, func() []arrival {
		f.next = 0
		f.send(10, size, 0)
		set(t, e, p, qdisc.Netem{Rate: rate})
		f.send(10, size, 0)
		return f.collect(20)
	})
	for i, a := range got {
		if len(got) != 20 || a.number != uint64(i) {
			t.Errorf("arrival %d of %d is number %d", i, len(got), a.number)
		}
	}
	// A full queue drops the rest.
	_, c := steady(t, e, p, qdisc.Netem{Rate: 10_000, Limit: 5}, func() []arrival {
		f.send(50, size, 0)
		return f.drain(400 * ms)
	})
	if c.Overflow == 0 || c.Overflow > 45 || c.Lost != 0 {
		t.Errorf("limit 5: %+v", c)
	}
}

// A reordered packet leaves at once, ahead of those that wait.
func TestReorder(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	sent := fewer(2000)
	got, c := steady(t, e, p, qdisc.Netem{Delay: 40 * ms, Reorder: 25, Seed: 4}, func() []arrival {
		f.send(sent, 64, 100*time.Microsecond)
		return f.collect(sent)
	})
	early := 0
	for _, a := range got {
		if a.delay() < 40*ms {
			early++
		}
	}
	// A busy machine may hold a packet up for as long as the delay.
	if len(got) != sent || early > int(c.Reordered) || early < int(c.Reordered)*9/10 || int(c.Delayed+c.Reordered) != sent {
		t.Errorf("%d of %d arrived, %d early; %+v", len(got), sent, early, c)
	}
	within(t, "reordered", int(c.Reordered), sent, .25)

	got, _ = steady(t, e, p, qdisc.Netem{Delay: 40 * ms, Reorder: 100, Gap: 5}, func() []arrival {
		f.next = 0
		f.send(100, 64, 100*time.Microsecond)
		return f.collect(100)
	})
	early = 0
	for _, a := range got {
		if a.delay() < 40*ms {
			early++
			if a.number%5 != 4 {
				t.Errorf("gap 5: packet %d took %s", a.number, a.delay())
			}
		}
	}
	if early < 15 {
		t.Errorf("gap 5: %d of 100 early, want 20", early)
	}
}

// Nobody receives a flipped bit: the checksum, which the sender had left to the
// device, does not fit it, on IPv4 and on IPv6.
func TestCorrupt(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	for _, way := range []struct{ client, server string }{{client4, server4}, {client6, server6}} {
		f := l.newFlow(t, way.client, way.server, 0, port)
		sent := fewer(3000)
		got, c := steady(t, e, p, qdisc.Netem{Corrupt: 30, Seed: 4}, func() []arrival {
			f.send(sent, 500, 20*time.Microsecond)
			return f.drain(150 * ms)
		})
		within(t, "corrupted", int(c.Corrupted), sent, .3)
		// A flipped bit in the source's hardware address or in a field that no checksum
		// covers, such as the traffic class, does no harm: fewer than 15 of 562 bytes.
		if harmless := len(got) - (sent - int(c.Corrupted)); harmless < 0 || harmless > int(c.Corrupted)/15 || f.bad > 0 {
			t.Errorf("%s: %d arrived, %d of them damaged, of %d with %d corrupted", way.server, len(got), f.bad, sent, c.Corrupted)
		}
		if err := e.Clear(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
}

// A full queue is overflow and not loss.
func TestLimit(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	got, c := steady(t, e, p, qdisc.Netem{Delay: slower(300 * ms), Limit: 50}, func() []arrival {
		f.send(200, 64, 100*time.Microsecond)
		return f.collect(50)
	})
	if len(got) != 50 || c.Overflow != 150 || c.Lost != 0 {
		t.Errorf("%d arrived; %+v", len(got), c)
	}
}

// Setting, changing and clearing a queue lose nothing by themselves, and neither do
// changes between the modes.
func TestQueueUnderTraffic(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			l, e := newLab(t), newEngine(t, Config{})
			p := onPort(l.place)
			if hook == target.Ingress {
				p = onPort(l.at(t, l.server, target.Ingress))
			}
			if !hasTCX() { // adding clsact loses packets, which is stated
				set(t, e, p, qdisc.Netem{})
			}
			f := l.newFlow(t, client4, server4, 0, port)
			stop, ended := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(ended)
				for n := uint64(1); ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(2 * ms):
					}
					var err error
					switch n % 4 {
					case 0:
						err = e.Clear(ctx, p)
					case 1:
						err = e.Set(ctx, p, qdisc.Netem{Delay: 5 * ms, Jitter: ms, Seed: n}, in(time.Minute))
					case 2:
						err = e.Set(ctx, p, qdisc.Netem{Delay: 5 * ms, Reorder: 10, Seed: n}, in(time.Minute))
					case 3:
						err = e.Set(ctx, p, qdisc.Netem{Seed: n}, in(time.Minute))
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			}()
			sent := fewer(5000)
			f.send(sent, 64, 50*time.Microsecond)
			close(stop)
			<-ended
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			seen := map[uint64]bool{}
			for _, a := range f.collect(sent) {
				seen[a.number] = true
			}
			if len(seen) != sent {
				t.Errorf("%d of %d arrived", len(seen), sent)
			}
		})
	}
}

// Close waits for what is not due yet, within bounds, and leaves nothing behind.
func TestCloseDrains(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l := newLab(t)
		f := l.newFlow(t, client4, server4, 0, port)
		undisturbed(t, func() string {
			e := newEngine(t, cfg)
			before := l.links(t, l.client)
			kinds, count := l.filters(t, l.place)
			for _, p := range []target.Place{onPort(l.place), l.peer, l.at(t, l.client, target.Ingress)} {
				set(t, e, p, qdisc.Netem{Delay: 100 * ms})
			}
			f.send(50, 64, 0)
			c := counters(t, e, onPort(l.place))
			start := time.Now()
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(start); took > drainLimit {
				t.Errorf("close took %s", took)
			}
			got := f.collect(50)
			if waited := waited(c); waited != "" {
				return waited
			}
			if len(got) != 50 || least(got) < 100*ms {
				t.Errorf("%d of 50 arrived, from %s", len(got), least(got))
			}
			if after := l.links(t, l.client); after != before {
				t.Errorf("devices %q, before %q", after, before)
			}
			if k, n := l.filters(t, l.place); k != kinds || n != count {
				t.Errorf("qdiscs %q with %d filters, before %q with %d", k, n, kinds, count)
			}
			if err := e.Set(ctx, l.place, qdisc.Netem{Loss: 1}, in(time.Minute)); err == nil {
				t.Error("set after close succeeded")
			}
			if err := e.Close(); err != nil {
				t.Errorf("second close: %v", err)
			}
			return ""
		})
	})
}

// Two places at one hook whose flows overlap: each packet passes each queue once.
func TestTwoQueuesOnOneHook(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			both(t, func(t *testing.T, cfg Config) {
				l, e := newLab(t), newEngine(t, cfg)
				a := l.place
				if hook == target.Ingress {
					a = l.at(t, l.server, target.Ingress)
				}
				b := onPort(a)
				f := l.newFlow(t, client4, server4, 0, port)
				for _, order := range [][]target.Place{{a, b}, {b, a}} {
					var got []arrival
					undisturbed(t, func() string {
						for _, p := range order {
							if err := e.Clear(ctx, p); err != nil {
								t.Fatal(err)
							}
						}
						for _, p := range []target.Place{order[1], order[0]} {
							set(t, e, p, qdisc.Netem{Delay: 30 * ms})
						}
						f.send(100, 64, ms)
						got = f.collect(100)
						return waited(counters(t, e, a), counters(t, e, b))
					})
					if len(got) != 100 || least(got) < 60*ms || quick(got) > 60*ms+slower(20*ms) {
						t.Errorf("%d of 100 arrived, from %s, first decile %s, want 60ms", len(got), least(got), quick(got))
					}
					for _, p := range order {
						if err := e.Clear(ctx, p); err != nil {
							t.Fatal(err)
						}
					}
				}
				// Both only lose, each half of what it sees; what passed while the machine
				// kept the engine waiting is no part of that.
				set(t, e, a, qdisc.Netem{Loss: 50, Seed: 1})
				set(t, e, b, qdisc.Netem{Loss: 50, Delay: ms, Seed: 2})
				f.send(4000, 64, 20*time.Microsecond)
				arrived := len(f.drain(150 * ms))
				at, bt := counters(t, e, a), counters(t, e, b)
				within(t, "lost at the first", int(at.Lost), int(at.Seen-at.Opened), .5)
				within(t, "lost at the second", int(bt.Lost), int(bt.Seen-bt.Opened), .5)
				// The first place sees the device's own chatter too.
				if left := bt.Seen - bt.Lost - bt.Overflow - bt.Late; at.Seen < 4000 || arrived != int(left) {
					t.Errorf("%d arrived, %d left the second place: %+v, %+v", arrived, left, at, bt)
				}
			})
		})
	}
}

// Two agents at one hook: no packet is handed to and fro, and none is lost.
func TestTwoEngines(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			both(t, func(t *testing.T, cfg Config) {
				l, a, b := newLab(t), newEngine(t, cfg), newEngine(t, cfg)
				p := onPort(l.place)
				if hook == target.Ingress {
					p = onPort(l.at(t, l.server, target.Ingress))
				}
				f := l.newFlow(t, client4, server4, 0, port)
				var d fault.Counters
				got, c := steady(t, a, p, qdisc.Netem{Delay: 30 * ms}, func() []arrival {
					before := counters(t, b, p)
					set(t, b, p, qdisc.Netem{Delay: 30 * ms})
					f.send(100, 64, ms)
					got := f.collect(100)
					d = counters(t, b, p).Since(before)
					return got
				})
				if len(got) != 100 || c.Seen > 100 || d.Seen > 100 || least(got) < 30*ms {
					t.Errorf("%d of 100 arrived, from %s; one engine %+v, the other %+v", len(got), least(got), c, d)
				}
			})
		})
	}
}

// The namespace goes although a queue is open in it: nothing keeps it.
func TestQueueLetsGo(t *testing.T) {
	for _, what := range []string{"device", "namespace"} {
		t.Run(what, func(t *testing.T) {
			l, e := newLab(t), newEngine(t, Config{})
			set(t, e, l.place, qdisc.Netem{Delay: ms})
			cmd := exec.Command("ip", "-n", l.client, "link", "del", "veth0")
			if what == "namespace" {
				cmd = exec.Command("ip", "netns", "del", l.client)
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			// The other end of the pair goes with its namespace.
			until(t, "release", slower(5*time.Second), func() bool { return l.links(t, l.server) == "lo" })
			until(t, "forgotten", slower(5*time.Second), func() bool {
				e.mu.Lock()
				defer e.mu.Unlock()
				return len(e.places) == 0
			})
		})
	}
}

// A process that was stopped for long drops what it finds, and goes on.
func TestStall(t *testing.T) {
	l := newLab(t)
	f := l.newFlow(t, client4, server4, 0, port)
	cmd := holder(t, order{Place: onPort(l.place), Netem: qdisc.Netem{Delay: 20 * ms}, Lifetime: time.Minute})
	f.send(50, 64, ms)
	f.collect(50)
	first := f.next
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	f.send(20, 64, ms) // into the TAP, while the heartbeat is still good
	time.Sleep(lateLimit + 200*ms)
	_ = cmd.Process.Signal(syscall.SIGCONT)
	time.Sleep(100 * ms)
	for _, a := range f.drain(50 * ms) {
		if a.delay() > lateLimit {
			t.Errorf("packet %d of the backlog arrived after %s", a.number-first, a.delay())
		}
	}
	f.send(50, 64, ms)
	if got := f.collect(50); len(got) != 50 || least(got) < 20*ms {
		t.Errorf("after the stall %d of 50 arrived, from %s", len(got), least(got))
	}
}

// What the engine cannot do is refused by name, and what was in force stays.
func TestUnsupported(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := target.Place{Namespace: l.client, Device: "tun0", Hook: target.Egress, Owned: true}
	l.in(t, l.client, func() error {
		tun := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: p.Device}, Mode: netlink.TUNTAP_MODE_TUN}
		if err := netlink.LinkAdd(tun); err != nil {
			return err
		}
		p.Index = tun.Index
		return netlink.LinkSetUp(tun)
	})
	before := l.links(t, l.client)
	want := qdisc.Netem{Loss: 20, Seed: 2}
	set(t, e, p, want)
	err := e.Set(ctx, p, qdisc.Netem{Delay: ms}, in(time.Minute))
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "everything but loss on a device without Ethernet headers") {
		t.Errorf("%v: want errors.ErrUnsupported for a delay", err)
	}
	st, err := e.Read(ctx, p)
	if diff := cmp.Diff(want.Normalize(), st.Netem); err != nil || diff != "" || l.links(t, l.client) != before {
		t.Errorf("after the refusal: %v, devices %s (-want +got):\n%s", err, l.links(t, l.client), diff)
	}
}

// Packets leave in bunches: at most so many at once, and the next ones not before the
// next slot.
func TestSlots(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			l, e := newLab(t), newEngine(t, Config{})
			p := onPort(l.place)
			if hook == target.Ingress {
				p = onPort(l.at(t, l.server, target.Ingress))
			}
			f := l.newFlow(t, client4, server4, 0, port)
			const sent, each, apart = 60, 20, 100 * ms
			got, c := steady(t, e, p, qdisc.Netem{Delay: ms, Slot: qdisc.Slot{MinDelay: apart, Packets: each}}, func() []arrival {
				f.next = 0
				f.send(sent, 64, 100*time.Microsecond)
				return f.collect(sent)
			})
			if len(got) != sent || int(c.Delayed) != sent || c.Overflow != 0 {
				t.Fatalf("%d of %d arrived; %+v", len(got), sent, c)
			}
			for i, a := range got {
				// The first slot is drawn when the first packet comes, or again when a later
				// one comes after it has begun.
				if a.number != uint64(i) || a.delay() < apart*time.Duration(i/each) {
					t.Errorf("arrival %d is packet %d, after %s", i, a.number, a.delay())
				}
				if i >= each {
					if since := time.Duration(a.at - got[i-each].at); since < apart/2 {
						t.Errorf("packet %d leaves %s after packet %d", i, since, i-each)
					}
				}
			}
			t.Logf("slots at %s, %s, %s", got[0].delay(), got[each].delay(), got[2*each].delay())
			// Slots alone delay, too.
			got, c = steady(t, e, p, qdisc.Netem{Slot: qdisc.Slot{MinDelay: apart, Packets: each}}, func() []arrival {
				f.next = 0
				f.send(sent, 64, 100*time.Microsecond)
				return f.collect(sent)
			})
			if len(got) != sent || int(c.Delayed) < sent-each || int(c.Delayed) > sent {
				t.Errorf("slots alone: %d of %d arrived; %+v", len(got), sent, c)
			}
			// Without slots again, what waits for one leaves.
			set(t, e, p, qdisc.Netem{Delay: ms, Slot: qdisc.Slot{MinDelay: 20 * time.Second}})
			f.send(10, 64, ms)
			set(t, e, p, qdisc.Netem{Delay: ms})
			if got := f.collect(10); len(got) != 10 || quick(got) > 10*time.Second {
				t.Errorf("after the slots %d of 10 arrived, from %s", len(got), least(got))
			}
		})
	}
}

// The same seed does the same to the same packets, each time and at both hooks; another
// seed to others.
func TestSeedInTheQueue(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	f := l.newFlow(t, client4, server4, 0, port)
	const sent, delay = 300, 200 * ms
	// run says what became of each packet: how often it came, and how often early.
	run := func(p target.Place, seed uint64) (fates [sent][2]int) {
		n := qdisc.Netem{Delay: delay, Loss: 20, Duplicate: 10, Reorder: 20, Seed: seed}
		got, _ := steady(t, e, p, n, func() []arrival {
			f.next = 0
			f.send(sent, 64, 100*time.Microsecond)
			return f.drain(delay + 100*ms)
		})
		for _, a := range got {
			fates[a.number][0]++
			if a.delay() < delay {
				fates[a.number][1]++
			}
		}
		if err := e.Clear(ctx, p); err != nil {
			t.Fatal(err)
		}
		return fates
	}
	egress, ingress := onPort(l.place), onPort(l.at(t, l.server, target.Ingress))
	first := run(egress, 5)
	if diff := cmp.Diff(first, run(egress, 5)); diff != "" {
		t.Errorf("the same seed (-once +again):\n%s", diff)
	}
	if diff := cmp.Diff(first, run(ingress, 5)); diff != "" {
		t.Errorf("the same seed (-egress +ingress):\n%s", diff)
	}
	if first == run(egress, 6) {
		t.Error("another seed did the same")
	}
	var lost, twice, early int
	for _, x := range first {
		lost += map[int]int{0: 1}[x[0]]
		twice += map[int]int{2: 1}[x[0]]
		early += x[1]
	}
	if lost == 0 || twice == 0 || early == 0 {
		t.Errorf("%d were lost, %d came twice, %d early", lost, twice, early)
	}
}

// On loopback both versions of IP are held: single packets, connections, long datagrams
// and those to other addresses of the host, none of them damaged, and no sysctl is
// touched.
func TestLoopback(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		l.server = l.client // both ends in one namespace
		p := target.Place{Namespace: l.client, Device: "lo", Hook: target.Egress}
		sysctls := func() (all string) {
			l.in(t, l.client, func() error {
				lo, err := netlink.LinkByName("lo")
				if err != nil {
					return err
				}
				p.Index = lo.Attrs().Index
				for _, name := range []string{"route_localnet", "accept_local", "rp_filter"} {
					b, err := os.ReadFile("/proc/sys/net/ipv4/conf/lo/" + name)
					if err != nil {
						return err
					}
					all += name + " " + string(b)
				}
				return nil
			})
			return all
		}
		before := sysctls()
		const delay = 20 * ms
		addresses, faults := []string{"127.0.0.1", client4, "::1"}, []qdisc.Netem{{Delay: delay, Loss: 1, Duplicate: 1, Seed: 3}, {Delay: delay}}
		if inVM && testing.Short() {
			addresses, faults = addresses[:1], faults[:1]
		}
		for _, address := range addresses {
			f := l.newFlow(t, address, address, 0, port)
			p.Match.Include = []target.Flow{{Protocol: 17, DestinationPorts: target.Port(port)}}
			for _, size := range []int{64, 60_000} {
				got, c := steady(t, e, p, qdisc.Netem{Delay: delay}, func() []arrival {
					f.send(50, size, ms)
					return f.collect(50)
				})
				if len(got) != 50 || least(got) < delay || f.bad > 0 || c.Seen != 50 || c.Delayed != 50 || c.Overflow > 0 {
					t.Errorf("%s: %d of 50 arrived, from %s, %d of them damaged; %+v", address, len(got), least(got), f.bad, c)
				}
			}
			if err := e.Clear(ctx, p); err != nil {
				t.Fatal(err)
			}
			f.out.Close()
			f.in.Close()

			// Both directions of a connection pass egress.
			p.Match.Include = []target.Flow{{Protocol: 6}}
			for _, n := range faults {
				set(t, e, p, n)
				client, peer := l.connect(t, address)
				data := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
				limit := time.Now().Add(slower(30 * time.Second))
				_, _ = client.SetDeadline(limit), peer.SetDeadline(limit)
				go func() { _, _ = client.Write(data) }()
				got := make([]byte, len(data))
				if n, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: %d of %d bytes, %v", address, n, len(data), err)
				}
				start := time.Now()
				go func() { _, _ = peer.Write([]byte{1}) }()
				_, err := io.ReadFull(client, got[:1])
				took, c := time.Since(start), counters(t, e, p)
				if late := c.Opened > 0; err != nil || !late && (took < delay || c.Seen-c.Lost+c.Duplicated > c.Delayed) {
					t.Errorf("%s: the answer took %s: %v; %+v", address, took, err, c)
				}
			}
			if err := e.Clear(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		if after := sysctls(); after != before {
			t.Errorf("sysctls of lo were\n%sand are\n%s", before, after)
		}
		p.Hook = target.Ingress
		if err := e.Set(ctx, p, qdisc.Netem{Delay: delay}, in(time.Minute)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("ingress: %v", err)
		}
	})
}
