package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/match"
	"netemd/internal/target"
	"netemd/qdisc"
)

var ctx = context.Background()

func in(d time.Duration) time.Time { return time.Now().Add(d) }

// both runs a test on tcx and on clsact.
func both(t *testing.T, f func(t *testing.T, cfg Config)) {
	t.Run("tcx", func(t *testing.T) { needTCX(t); f(t, Config{}) })
	t.Run("clsact", func(t *testing.T) { f(t, Config{Clsact: true}) })
}

func TestLoss(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		// The stack sends some packets of its own.
		l.place.Match = target.Match{Include: []target.Flow{{Protocol: 17, DestinationPorts: target.Port(port)}}}
		f := l.newFlow(t, client4, server4, 0, port)
		if got := len(f.burst(1000)); got != 1000 {
			t.Fatalf("before: %d of 1000 arrived", got)
		}
		n := qdisc.Netem{Loss: 20, Seed: 7}
		const sent = 10000
		var (
			got    int
			opened uint64
			st     fault.Status
		)
		undisturbed(t, func() string {
			if err := e.Clear(ctx, l.place); err != nil {
				t.Fatal(err)
			}
			set(t, e, l.place, n)
			got = len(f.burst(sent))
			var err error
			if st, err = e.Read(ctx, l.place); err != nil {
				t.Fatal(err)
			}
			if opened = st.Counters.Opened; opened > sent/2 {
				return waited(st.Counters)
			}
			return ""
		})
		within(t, "lost", sent-got, sent-int(opened), 0.2)
		want := fault.Status{Netem: n.Normalize(), Counters: fault.Counters{Seen: sent, Lost: sent - uint64(got), Opened: opened}}
		if diff := cmp.Diff(want, st); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
		if err := e.Clear(ctx, l.place); err != nil {
			t.Fatal(err)
		}
		if got := len(f.burst(1000)); got != 1000 {
			t.Errorf("after: %d of 1000 arrived", got)
		}
		if st, err := e.Read(ctx, l.place); err != nil || !st.Netem.IsZero() {
			t.Errorf("read after clear: %+v, %v", st.Netem, err)
		}
	})
}

func TestSameSeedSameLoss(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		l.place.Match = target.Match{Include: []target.Flow{{Protocol: 17, DestinationPorts: target.Port(port)}}}
		f := l.newFlow(t, client4, server4, 0, port)
		sent := uint64(fewer(2000))
		run := func(n qdisc.Netem) (got map[uint64]bool) {
			undisturbed(t, func() string {
				set(t, e, l.place, n)
				f.next = 0
				got = f.burst(int(sent))
				c := counters(t, e, l.place)
				if err := e.Clear(ctx, l.place); err != nil {
					t.Fatal(err)
				}
				return waited(c)
			})
			return got
		}
		for _, rho := range []qdisc.Percent{0, 25} {
			a := run(qdisc.Netem{Loss: 20, LossCorrelation: rho, Seed: 1})
			b := run(qdisc.Netem{Loss: 20, LossCorrelation: rho, Seed: 1})
			c := run(qdisc.Netem{Loss: 20, LossCorrelation: rho, Seed: 2})
			if !maps.Equal(a, b) {
				t.Errorf("correlation %v: the same seed lost other packets", rho)
			}
			if maps.Equal(a, c) {
				t.Errorf("correlation %v: another seed lost the same packets", rho)
			}
			// netem's own arithmetic: 20 % with 25 % gives fewer than 20 %.
			var lost int
			state := uint64(splitmix(^uint64(1)) >> 32)
			for i := range sent {
				draw := splitmix(1+(i+1)*goldenGamma) >> 32
				if r := uint64(rho.Fraction()); r > 0 {
					draw = (draw*(1<<32-(r+1)) + state*(r+1)) >> 32
					state = draw
				}
				if draw <= uint64(qdisc.Percent(20).Fraction()) {
					lost++
					if a[i] {
						t.Fatalf("correlation %v: packet %d arrived, the published arithmetic loses it", rho, i)
					}
				}
			}
			if len(a) != int(sent)-lost {
				t.Errorf("correlation %v: %d arrived, want %d", rho, len(a), int(sent)-lost)
			}
		}
	})
}

func TestFlowSelection(t *testing.T) {
	prefix := netip.MustParsePrefix
	const from, other = 5000, 4001
	one := func(f target.Flow) target.Match { return target.Match{Include: []target.Flow{f}} }
	but := func(f ...target.Flow) target.Match { return target.Match{Exclude: f} }
	toPort := target.Flow{DestinationPorts: target.Port(port)}
	tests := []struct {
		name  string
		match target.Match
		// whether packets from port `from` to port `port` are selected, and those to
		// port `other`.
		port4, other4, port6 bool
	}{
		{"all", target.Match{}, true, true, true},
		{"any flow", one(target.Flow{}), true, true, true},
		{"udp", one(target.Flow{Protocol: 17}), true, true, true},
		{"tcp", one(target.Flow{Protocol: 6}), false, false, false},
		{"destination port", one(toPort), true, false, true},
		{"udp and destination port", one(target.Flow{Protocol: 17, DestinationPorts: target.Port(port)}), true, false, true},
		{"other source port", one(target.Flow{SourcePorts: target.Port(1)}), false, false, false},
		{"source port", one(target.Flow{SourcePorts: target.Port(from), DestinationPorts: target.Port(port)}), true, false, true},
		{"ports", one(target.Flow{DestinationPorts: target.Ports{First: port, Last: other}}), true, true, true},
		{"ports below", one(target.Flow{DestinationPorts: target.Ports{First: 1, Last: port}}), true, false, true},
		{"ports above", one(target.Flow{SourcePorts: target.Ports{First: from, Last: 65535}, DestinationPorts: target.Ports{First: other, Last: 65535}}), false, true, false},
		{"destination", one(target.Flow{Destination: prefix(server4 + "/32")}), true, true, false},
		{"destination net", one(target.Flow{Destination: prefix("10.99.0.0/17")}), true, true, false},
		{"mapped", one(target.Flow{Destination: prefix("::ffff:10.99.0.2/128")}), true, true, false},
		{"other net", one(target.Flow{Destination: prefix("10.99.1.0/24")}), false, false, false},
		{"everything IPv4", one(target.Flow{Destination: prefix("0.0.0.0/0")}), true, true, false},
		{"source and port", one(target.Flow{Source: prefix(client4 + "/32"), DestinationPorts: target.Port(port)}), true, false, false},
		{"destination 6", one(target.Flow{Destination: prefix(server6 + "/128")}), false, false, true},
		{"net 6", one(target.Flow{Destination: prefix("fd00:98::/31")}), false, false, true},
		{"other net 6", one(target.Flow{Destination: prefix("fd00:99::/127")}), false, false, false},
		{"source 6 and port", one(target.Flow{Source: prefix(client6 + "/127"), Protocol: 17, DestinationPorts: target.Port(port)}), false, false, true},

		{"two flows", target.Match{Include: []target.Flow{{Protocol: 6}, {DestinationPorts: target.Port(other)}, {Destination: prefix(server6 + "/128")}}}, false, true, true},
		{"but a port", but(toPort), false, true, false},
		{"but two flows", but(target.Flow{Source: prefix(client6 + "/128")}, target.Flow{DestinationPorts: target.Port(other)}), true, false, false},
		{"but IPv6", but(target.Flow{Source: prefix("::/0")}), true, true, false},
		{"but tcp", but(target.Flow{Protocol: 6}), true, true, true},
		{"udp but a range", target.Match{Include: []target.Flow{{Protocol: 17}}, Exclude: []target.Flow{{DestinationPorts: target.Ports{First: other, Last: other + 9}}}}, true, false, true},
		{"control but a port", target.Match{Control: true, Exclude: []target.Flow{toPort}}, false, true, false},
	}
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			l, e := newLab(t), newEngine(t, Config{})
			place := l.place
			if hook == target.Ingress {
				place = l.at(t, l.server, target.Ingress)
			}
			for _, tt := range tests {
				t.Run(tt.name, func(t *testing.T) {
					p := place
					p.Match = tt.match
					set(t, e, p, qdisc.Netem{Loss: 100})
					defer func() {
						if err := e.Clear(ctx, p); err != nil {
							t.Error(err)
						}
					}()
					for _, way := range []struct {
						name           string
						client, server string
						to             int
						selected       bool
					}{
						{"IPv4", client4, server4, port, tt.port4},
						{"IPv4, other port", client4, server4, other, tt.other4},
						{"IPv6", client6, server6, port, tt.port6},
					} {
						f := l.newFlow(t, way.client, way.server, from, way.to)
						f.send(20, 64, 0)
						want := map[bool]int{true: 0, false: 20}[way.selected]
						if want > 0 { // however long that takes
							until(t, way.name, slower(3*time.Second), func() bool { return f.came() >= want })
						}
						if got := len(f.drain(10 * time.Millisecond)); got != want {
							t.Errorf("%s: %d arrived, want %d", way.name, got, want)
						}
						f.out.Close()
						f.in.Close()
					}
				})
			}
			for _, m := range []target.Match{
				one(target.Flow{Source: prefix("10.0.0.0/8"), Destination: prefix("fd00::/8")}),
				one(target.Flow{Protocol: 1, DestinationPorts: target.Port(7)}),
				{Control: true, Include: []target.Flow{toPort}},
			} {
				p := place
				p.Match = m
				if err := e.Set(ctx, p, qdisc.Netem{Loss: 1}, in(time.Minute)); err == nil {
					t.Errorf("match %+v was accepted", m)
				}
			}
		})
	}
}

// A match of as many flows as there may be, each as long as one can be, is taken.
func TestMostFlows(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	var m target.Match
	for i := range match.MaxFlows {
		f := target.Flow{
			Protocol: 17, SourcePorts: target.Ports{First: 1, Last: 65535}, DestinationPorts: target.Ports{First: 2, Last: uint16(3 + i)},
			Source: netip.MustParsePrefix(client6 + "/127"), Destination: netip.MustParsePrefix(server6 + "/127"),
		}
		if i%2 == 0 {
			m.Exclude = append(m.Exclude, f)
			continue
		}
		m.Include = append(m.Include, f)
	}
	m.Include[len(m.Include)-1].DestinationPorts = target.Ports{First: port - 1, Last: port}
	for _, p := range []target.Place{l.place, l.at(t, l.server, target.Ingress)} {
		p.Match = m
		hit, miss := l.newFlow(t, client6, server6, 0, port), l.newFlow(t, client6, server6, 0, port+1)
		got, c := steady(t, e, p, qdisc.Netem{Loss: 100}, func() []arrival {
			hit.send(10, 64, 0)
			miss.send(10, 64, 0)
			if got := len(miss.collect(10)); got != 10 {
				t.Errorf("%s: %d of 10 others arrived", p.Hook, got)
			}
			return hit.drain(10 * ms)
		})
		if len(got) != 0 || c.Seen != 10 {
			t.Errorf("%s: %d of 10 arrived; %+v", p.Hook, len(got), c)
		}
		for _, f := range []*stream{hit, miss} {
			f.out.Close()
			f.in.Close()
		}
		if err := e.Clear(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	p := l.place
	m.Include = append(m.Include, target.Flow{Protocol: 6})
	p.Match = m
	if err := e.Set(ctx, p, qdisc.Netem{Loss: 100}, in(time.Minute)); err == nil || !strings.Contains(err.Error(), "65, want at most 64") {
		t.Errorf("one more: %v", err)
	}
}

// Later fragments have no ports: a flow with ports takes the first one, which is
// enough to lose the datagram, and another port's datagrams stay whole.
func TestFragments(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	for _, way := range []struct{ client, server string }{{client4, server4}, {client6, server6}} {
		p := l.place
		p.Match = target.Match{Include: []target.Flow{{Protocol: 17, DestinationPorts: target.Port(port)}}}
		if err := e.Set(ctx, p, qdisc.Netem{Loss: 100}, in(time.Minute)); err != nil {
			t.Fatal(err)
		}
		hit := l.newFlow(t, way.client, way.server, 0, port)
		miss := l.newFlow(t, way.client, way.server, 0, port+1)
		before, err := e.Read(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		hit.send(5, 5000, time.Millisecond)
		miss.send(5, 5000, time.Millisecond)
		if got := len(hit.drain(20 * time.Millisecond)); got != 0 {
			t.Errorf("%s: %d selected datagrams arrived", way.server, got)
		}
		if got := len(miss.drain(20 * time.Millisecond)); got != 5 {
			t.Errorf("%s: %d of 5 other datagrams arrived", way.server, got)
		}
		after, err := e.Read(ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		if got := after.Counters.Lost - before.Counters.Lost; got != 5 {
			t.Errorf("%s: %d packets lost, want the 5 first fragments", way.server, got)
		}
	}
}

// With everything lost, neighbours are still found.
func TestNeighboursAreLeftAlone(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	if err := e.Set(ctx, l.place, qdisc.Netem{Loss: 100}, in(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct{ client, server string }{{client4, server4}, {client6, server6}} {
		if out, err := exec.Command("ip", "-n", l.client, "neigh", "del", way.server, "dev", "veth0").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		f := l.newFlow(t, way.client, way.server, 0, port)
		f.send(3, 64, 20*time.Millisecond)
		until(t, "neighbour "+way.server, slower(3*time.Second), func() bool {
			out, err := exec.Command("ip", "-n", l.client, "neigh", "show", "to", way.server, "nud", "reachable").Output()
			return err == nil && len(out) > 0
		})
		if got := len(f.drain(10 * time.Millisecond)); got != 0 {
			t.Errorf("%d arrived at 100%% loss", got)
		}
	}
}

// A match with control packets takes them, in both modes.
func TestControlPackets(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	l.place.Match.Control = true
	forget := func(server string) {
		t.Helper()
		if out, err := exec.Command("ip", "-n", l.client, "neigh", "del", server, "dev", "veth0").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	reachable := func(server string) bool {
		out, err := exec.Command("ip", "-n", l.client, "neigh", "show", "to", server, "nud", "reachable").Output()
		return err == nil && len(out) > 0
	}
	for _, way := range []struct{ client, server string }{{client4, server4}, {client6, server6}} {
		forget(way.server)
		set(t, e, l.place, qdisc.Netem{Loss: 100})
		f := l.newFlow(t, way.client, way.server, 0, port)
		f.send(3, 64, 20*time.Millisecond)
		time.Sleep(slower(50 * time.Millisecond))
		if st, err := e.Read(ctx, l.place); err != nil || st.Counters.Opened == 0 && reachable(way.server) {
			t.Errorf("neighbour %s was found with everything lost: %+v, %v", way.server, st.Counters, err)
		}
		set(t, e, l.place, qdisc.Netem{Delay: 30 * ms})
		f.next = 0
		f.drain(10 * time.Millisecond)
		until(t, "neighbour "+way.server, slower(5*time.Second), func() bool {
			f.send(1, 64, 20*time.Millisecond)
			return reachable(way.server)
		})
		// The request is delayed, and with it the datagram, which is delayed itself.
		if got := f.collect(1); len(got) == 0 || least(got) < 30*ms {
			t.Errorf("%s: %d arrived, from %s", way.server, len(got), least(got))
		}
		if err := e.Clear(ctx, l.place); err != nil {
			t.Fatal(err)
		}
	}
}

// Setting, changing and clearing lose nothing by themselves, and counters run on.
func TestSetUnderTraffic(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		if cfg.Clsact { // adding it loses packets, which is stated
			if err := e.Set(ctx, l.place, qdisc.Netem{}, in(time.Minute)); err != nil {
				t.Fatal(err)
			}
		}
		f := l.newFlow(t, client4, server4, 0, port)
		stop := make(chan struct{})
		changes := make(chan int)
		go func() {
			n := 0
			defer func() { changes <- n }()
			for ; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				if n%3 == 2 {
					_ = e.Clear(ctx, l.place)
				} else if err := e.Set(ctx, l.place, qdisc.Netem{Loss: 0, Seed: uint64(n + 1)}, in(time.Minute)); err != nil {
					t.Error(err)
				}
			}
		}()
		sent := fewer(5000)
		got := len(f.burst(sent))
		close(stop)
		if n := <-changes; n < 20 {
			t.Errorf("only %d changes", n)
		}
		if got != sent {
			t.Errorf("%d of %d arrived", got, sent)
		}
	})
}

func TestCountersOfOneFault(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	l.place.Match = target.Match{Include: []target.Flow{{Protocol: 17, DestinationPorts: target.Port(port)}}}
	f := l.newFlow(t, client4, server4, 0, port)
	seen := func(want uint64) {
		t.Helper()
		st, err := e.Read(ctx, l.place)
		if err != nil {
			t.Fatal(err)
		}
		if st.Counters.Seen != want {
			t.Errorf("seen %d, want %d", st.Counters.Seen, want)
		}
	}
	set := func(n qdisc.Netem, d time.Duration) {
		t.Helper()
		if err := e.Set(ctx, l.place, n, in(d)); err != nil {
			t.Fatal(err)
		}
	}
	set(qdisc.Netem{Loss: 100}, time.Minute)
	f.burst(10)
	seen(10)
	set(qdisc.Netem{Loss: 50}, time.Minute) // a change keeps them
	f.burst(10)
	seen(20)
	if err := e.Clear(ctx, l.place); err != nil {
		t.Fatal(err)
	}
	f.burst(10) // not seen
	set(qdisc.Netem{Loss: 50}, time.Minute)
	f.burst(10)
	seen(10)
	if err := e.Set(ctx, l.place, qdisc.Netem{Loss: 1}, in(-time.Second)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("set with a past deadline: %v", err)
	}
	seen(10)
}

// The deadline ends a fault without the process.
func TestDeadline(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	l.place.Match = target.Match{Include: []target.Flow{{Protocol: 17, DestinationPorts: target.Port(port)}}}
	f := l.newFlow(t, client4, server4, 0, port)
	unit := slower(100 * time.Millisecond)
	if err := e.Set(ctx, l.place, qdisc.Netem{Loss: 100, Seed: 3}, in(4*unit)); err != nil {
		t.Fatal(err)
	}
	if got := len(f.burst(100)); got != 0 {
		t.Errorf("%d arrived before the deadline", got)
	}
	// The same again only moves the deadline.
	if err := e.Set(ctx, l.place, qdisc.Netem{Loss: 100}, in(2*unit)); err != nil {
		t.Fatal(err)
	}
	st, err := e.Read(ctx, l.place)
	if err != nil || st.Netem.Seed != 3 || st.Counters.Lost != 100 {
		t.Errorf("read after renewal: %+v, %v", st, err)
	}
	time.Sleep(3 * unit)
	if got := len(f.burst(100)); got != 100 {
		t.Errorf("%d of 100 arrived after the deadline", got)
	}
	if st, err = e.Read(ctx, l.place); err != nil || !st.Netem.IsZero() || st.Counters.Seen != 100 {
		t.Errorf("read after the deadline: %+v, %v", st, err)
	}
}

func TestGone(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		n := qdisc.Netem{Loss: 20}
		if err := e.Set(ctx, l.place, n, in(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("ip", "-n", l.client, "link", "del", "veth0").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for range 2 {
			if _, err := e.Read(ctx, l.place); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("read: %v", err)
			}
			if err := e.Set(ctx, l.place, n, in(time.Minute)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("set: %v", err)
			}
			if err := e.Clear(ctx, l.place); err != nil {
				t.Errorf("clear: %v", err)
			}
		}
		nowhere := target.Place{Namespace: fmt.Sprintf("%s-none", l.client), Index: 1, Hook: target.Egress}
		if _, err := e.Read(ctx, nowhere); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("read in no namespace: %v", err)
		}
		if err := e.Set(ctx, nowhere, n, in(time.Minute)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("set in no namespace: %v", err)
		}
		if err := e.Set(ctx, target.Place{Namespace: l.client, Index: 1, Hook: "sideways"}, n, in(time.Minute)); err == nil {
			t.Error("an unknown hook was accepted")
		}
	})
}
