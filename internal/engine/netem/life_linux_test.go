package netem

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

func streamTo(port uint16) *stream {
	return &stream{name: target.Port(port).String(), protocol: unix.IPPROTO_UDP, port: port}
}

func toPort(port uint16) target.Flow {
	return target.Flow{Protocol: unix.IPPROTO_UDP, DestinationPorts: target.Port(port)}
}

// in reads what is in force at p.
func (e *Engine) in(t *testing.T, p target.Place) qdisc.Netem {
	t.Helper()
	st, err := e.Read(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return st.Netem
}

func (e *Engine) must(t *testing.T, p target.Place, n qdisc.Netem) {
	t.Helper()
	if err := e.Set(t.Context(), p, n, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

// Whatever somebody else does to a fault is seen, and the next Set ends it.
func TestDetourRepaired(t *testing.T) { bothWays(t, testDetourRepaired) }

func testDetourRepaired(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	p := b.foreign(target.Egress, toPort(80))
	n := qdisc.Netem{Delay: 20 * ms}
	before := b.tree(t)
	e.must(t, p, n)
	x := func() *detour { return e.devices[key{p.Namespace, p.Index}].detours[p.Key()] }
	tc := func(command string) func() error {
		return func() error {
			_, err := tcOf(b.near, words(strings.NewReplacer("IFB", x().ifb.name, "GATE", x().gate.name).Replace(command))...)
			return err
		}
	}
	device := func(name func() string, change func(netlink.Link) error) func() error {
		return func() error {
			l, err := b.links.LinkByName(name())
			if err == nil {
				err = change(l)
			}
			return err
		}
	}
	ifb, gate := func() string { return x().ifb.name }, func() string { return x().gate.name }
	harm := map[string]func() error{
		"root deleted":  tc("qdisc del dev IFB root"),
		"root replaced": tc("qdisc replace dev IFB root handle 1: pfifo"),
		"ifb deleted":   device(ifb, b.links.LinkDel), "ifb down": device(ifb, b.links.LinkSetDown),
	}
	if clsactOnly {
		harm["filter deleted"] = tc("filter del dev v0 egress")
		harm["clsact deleted"] = tc("qdisc del dev v0 clsact")
	} else {
		harm["link detached"] = func() error { return x().entry.link.Detach() }
		harm["gate open"], harm["gate shut"] = tc("qdisc del dev GATE clsact"), tc("filter del dev GATE egress")
		harm["gate deleted"], harm["gate down"] = device(gate, b.links.LinkDel), device(gate, b.links.LinkSetDown)
		harm["clsact added"] = nil // is none
	}
	for what, command := range harm {
		if command == nil {
			b.tc(t, "qdisc add dev v0 clsact")
			e.must(t, p, n)
			b.tc(t, "qdisc del dev v0 clsact")
			continue
		}
		if err := command(); err != nil {
			t.Fatal(what, err)
		}
		if now := e.in(t, p); !now.IsZero() {
			t.Errorf("%s: %v is said to be in force", what, now)
		}
		if tree := b.tree(t); strings.HasPrefix(what, "ifb") && (strings.Contains(tree, "mirred") || x().entry != nil) {
			t.Errorf("%s: a filter leads to nowhere:\n%s", what, tree)
		}
		e.must(t, p, n)
		if now := e.in(t, p); len(n.Differences(now)) > 0 {
			t.Errorf("%s: then %v is in force", what, now)
		}
	}
	if err := e.Clear(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	e.drains.Wait()
	if after := b.tree(t); after != before {
		t.Errorf("(-before +after):\n%s", cmp.Diff(before, after))
	}
}

// The index of an ifb that somebody deleted may be another device's by the time that
// the fault is repaired, which then is left alone.
func TestDetourRepairedBesideItsIndex(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	p := b.foreign(target.Egress, toPort(80))
	for _, kind := range []string{"veth", ifbKind} {
		e.must(t, p, qdisc.Netem{Delay: 20 * ms})
		index := e.devices[key{p.Namespace, p.Index}].detours[p.Key()].ifb.index
		l, err := b.links.LinkByIndex(index)
		if err == nil {
			err = b.links.LinkDel(l)
		}
		attrs := netlink.LinkAttrs{Name: "other", Index: index}
		if err == nil && kind == ifbKind {
			err = b.links.LinkAdd(&netlink.Ifb{LinkAttrs: attrs})
		} else if err == nil {
			err = b.links.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "others-end"})
		}
		if err != nil {
			t.Fatal(err)
		}
		e.must(t, p, qdisc.Netem{Delay: 20 * ms})
		other, err := b.links.LinkByIndex(index)
		if err != nil || other.Attrs().Name != "other" {
			t.Fatalf("%s: device %d is %v, %v: a device of somebody else's was taken for ours", kind, index, other, err)
		}
		if err := b.links.LinkDel(other); err != nil {
			t.Fatal(err)
		}
	}
}

// An undo leaves no filter that sends packets to an ifb which is gone: they would be
// lost.
func TestFailedRepairLeavesNoFilter(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	e.clsactOnly = true
	p := b.foreign(target.Egress, toPort(80))
	e.must(t, p, qdisc.Netem{Delay: 20 * ms})
	l, err := b.links.LinkByName(e.devices[key{p.Namespace, p.Index}].detours[p.Key()].ifb.name)
	if err == nil {
		err = b.links.LinkDel(l)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := e.connect(p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	device, err := c.subject(p)
	if err != nil {
		t.Fatal(err)
	}
	before := failAt
	t.Cleanup(func() { failAt = before })
	failAt = func(at string) {
		if at != "netem.filter.set" {
			return
		}
		all, err := c.filters(device, p.Hook)
		if err != nil || len(all) == 0 {
			t.Fatal(all, err)
		}
		prog, _, err := load(target.Match{Include: []target.Flow{toPort(81)}}, 14)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = prog.Close() }()
		if err := c.replaceFilter(device, all[len(all)-1], prog.FD()); err != nil {
			t.Fatal(err)
		}
	}
	var conflict *ConflictError
	if err := e.Set(t.Context(), p, qdisc.Netem{Delay: 30 * ms}, time.Time{}); !errors.As(err, &conflict) {
		t.Fatalf("%v, want a conflict", err)
	}
	failAt = before
	all, err := c.filters(device, p.Hook)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.ours() {
			t.Errorf("left: %s, which sends to device %d", f, f.to)
		}
	}
	e.must(t, p, qdisc.Netem{Delay: 40 * ms})
}

// Faults of two flows on one device know nothing of each other, and the clsact goes
// with the last.
func TestTwoDetours(t *testing.T) { bothWays(t, testTwoDetours) }

func testTwoDetours(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	a, z := streamTo(80), streamTo(81)
	tr := b.flows(t, a, z)
	tr.known(t)
	before := b.tree(t)
	first, second := b.foreign(target.Egress, toPort(80)), b.foreign(target.Egress, toPort(81))
	e.must(t, first, qdisc.Netem{Delay: 30 * ms})
	e.must(t, second, qdisc.Netem{Duplicate: 100})
	spans := tr.rounds(t, 20)
	for _, s := range tr.streams {
		if got := tr.await(s, spans[s]); got != 20 {
			t.Errorf("port %s: %d of 20 came", s.name, got)
		}
	}
	if err := e.Clear(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	e.drains.Wait()
	if now := e.in(t, second); now.Duplicate != 100 {
		t.Errorf("cleared the other's, too: %v", now)
	}
	spans = tr.rounds(t, 20)
	tr.await(a, spans[a])
	st, err := e.Read(t.Context(), second)
	if err != nil || st.Counters.Seen != 40 {
		t.Errorf("seen %d of 40, %v", st.Counters.Seen, err)
	}
	if os.Getenv("NETEMD_TEST_NETEM") != "" {
		for n := spans[a].from; n < spans[a].to; n++ {
			if took := tr.took(a, n); took == 0 {
				t.Errorf("packet %d of the cleared flow is lost", n)
			}
		}
	}
	if err := e.Clear(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	// Cleared, its ifb still there, and used again.
	e.must(t, second, qdisc.Netem{Delay: ms})
	spans = tr.rounds(t, 10)
	if got := tr.await(z, spans[z]); got != 10 {
		t.Errorf("%d of 10 came", got)
	}
	if st, err := e.Read(t.Context(), second); err != nil || st.Counters.Seen != 10 {
		t.Errorf("a new fault has seen %d of 10, %v", st.Counters.Seen, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if after := b.tree(t); after != before {
		t.Errorf("(-before +after):\n%s", cmp.Diff(before, after))
	}
}

// A fault gets another flow in one step: no packet of either passes it unseen twice or
// is lost.
func TestRematch(t *testing.T) { bothWays(t, testRematch) }

func testRematch(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	a, z := streamTo(80), streamTo(81)
	tr := b.flows(t, a, z)
	tr.known(t)
	before := b.tree(t)
	p, q := b.foreign(target.Egress, toPort(80)), b.foreign(target.Egress, toPort(81))
	if err := e.Rematch(t.Context(), p, q.Match); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a fault: %v", err)
	}
	e.must(t, p, qdisc.Netem{Delay: ms})
	spans := tr.rounds(t, 7)
	if err := e.Rematch(t.Context(), p, q.Match); err != nil {
		t.Fatal(err)
	}
	tr.rounds(t, 5)
	st, err := e.Read(t.Context(), q)
	if err != nil || st.Netem.Delay != ms || st.Counters.Seen != 12 {
		t.Errorf("%v, seen %d of 12, %v", st.Netem, st.Counters.Seen, err)
	}
	if now := e.in(t, p); !now.IsZero() {
		t.Errorf("the former flow still has %v", now)
	}
	for _, s := range tr.streams {
		if got := tr.await(s, span{spans[s].from, s.sent}); got != 12 {
			t.Errorf("port %s: %d of 12 came", s.name, got)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if after := b.tree(t); after != before {
		t.Errorf("(-before +after):\n%s", cmp.Diff(before, after))
	}
}

// die is what the end of its process does to an engine.
func (e *Engine) die() {
	for _, d := range e.devices {
		for _, x := range d.detours {
			x.settle()
		}
		clear(d.detours)
	}
}

// An engine that starts anew finds what a former one with its mark left.
func TestDetourAdopted(t *testing.T) { bothWays(t, testDetourAdopted) }

func testDetourAdopted(t *testing.T) {
	b := newBench(t)
	before := b.tree(t)
	p := b.foreign(target.Ingress, toPort(80))
	former := detourEngine(t, b.near)
	former.must(t, p, qdisc.Netem{Delay: ms})
	former.die()
	e := detourEngine(t, b.near)
	if now := e.in(t, p); clsactOnly && now.Delay != ms || !clsactOnly && !now.IsZero() {
		t.Errorf("found %v", now) // by tcx nothing is in force without the process
	}
	e.must(t, p, qdisc.Netem{Loss: 3})
	if err := detourEngine(t, "another").Clear(t.Context(), p); err != nil {
		t.Error(err)
	}
	if now := e.in(t, p); now.Loss != 3 {
		t.Errorf("after another agent's clear: %v", now)
	}
	e.die()
	e = detourEngine(t, b.near)
	if err := errors.Join(e.Clear(t.Context(), p), e.Close()); err != nil {
		t.Error(err)
	}
	if after := b.tree(t); after != before {
		t.Errorf("(-before +after):\n%s", cmp.Diff(before, after))
	}
}

// With the device, or its namespace, its faults go.
func TestDetourOfNothing(t *testing.T) { bothWays(t, testDetourOfNothing) }

func testDetourOfNothing(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	p, other := b.foreign(target.Egress, toPort(80)), b.foreign(target.Egress, toPort(81))
	e.must(t, p, qdisc.Netem{Delay: ms})
	l, err := b.links.LinkByName("v0")
	if err == nil {
		err = b.links.LinkDel(l)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Read(t.Context(), p); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the device: %v", err)
	}
	if err := e.Clear(t.Context(), p); err != nil {
		t.Error(err)
	}
	e.drains.Wait()
	links, err := b.links.LinkList()
	if err != nil || len(links) != 1 {
		t.Errorf("left: %v, %v", links, err)
	}
	if err := namespaces.Delete(b.near); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Read(t.Context(), other); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without the namespace: %v", err)
	}
	if err := e.Clear(t.Context(), other); err != nil {
		t.Error(err)
	}
}

// On a loopback device both directions are egress, told apart by the port.
func TestDetourOnLoopback(t *testing.T) { bothWays(t, testDetourOnLoopback) }

func testDetourOnLoopback(t *testing.T) {
	b := newBench(t)
	lo, err := b.links.LinkByName("lo")
	if err == nil {
		err = b.links.LinkSetUp(lo)
	}
	if err != nil {
		t.Fatal(err)
	}
	e := detourEngine(t, b.near)
	to, from := b.foreign(target.Egress, toPort(80)), b.foreign(target.Egress, target.Flow{Protocol: unix.IPPROTO_UDP, SourcePorts: target.Port(80)})
	to.Device, to.Index, from.Device, from.Index = "lo", 1, "lo", 1
	tr := b.loopback(t)
	for n, p := range []target.Place{to, from} {
		e.must(t, p, qdisc.Netem{Delay: 30 * ms})
		start := time.Now()
		if came := tr(10); came != 10 {
			t.Errorf("%d of 10 answers came", came)
		}
		if least := time.Duration(n+1) * 30 * ms; os.Getenv("NETEMD_TEST_NETEM") != "" && time.Since(start) < least {
			t.Errorf("with %d directions delayed: %v, want %v or more", n+1, time.Since(start), least)
		}
	}
	for p, want := range map[string]struct {
		target.Place
		seen uint64
	}{"to": {to, 20}, "from": {from, 10}} {
		if st, err := e.Read(t.Context(), want.Place); err != nil || st.Counters.Seen != want.seen {
			t.Errorf("%s: seen %d of %d, %v", p, st.Counters.Seen, want.seen, err)
		}
	}
}

// Where ifb is a module, loading it leaves the agent's namespace without the devices
// that it makes by default; so does a place that is refused.
func TestNothingStray(t *testing.T) {
	stray := func() bool {
		_, err := os.Stat("/sys/class/net/ifb0")
		return err == nil
	}
	if stray() && !strayBefore {
		t.Error("a test made ifb0 in this namespace")
	}
	b := newBench(t)
	e := detourEngine(t, b.near)
	before := b.tree(t)
	p := b.foreign(target.Egress, target.Flow{Protocol: unix.IPPROTO_ICMP, DestinationPorts: target.Port(80)})
	if err := e.Set(t.Context(), p, qdisc.Netem{Delay: ms}, time.Time{}); err == nil {
		t.Error("ports of ICMP were taken")
	}
	if after := b.tree(t); after != before {
		t.Errorf("(-before +after):\n%s", cmp.Diff(before, after))
	}
	e.must(t, b.foreign(target.Egress), qdisc.Netem{Delay: ms})
	if stray() && !strayBefore {
		t.Error("a fault made ifb0 in this namespace")
	}
}

// strayBefore is whether ifb0 was there before any test.
var strayBefore = func() bool {
	_, err := os.Stat("/sys/class/net/ifb0")
	return err == nil
}()

// To make a clsact, and to take it away, the kernel stops the device for a moment:
// what it has to send then is lost. How much is a matter of that moment.
func TestMakingClsact(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	e.clsactOnly = true
	tr := b.flows(t, streamTo(80))
	tr.known(t)
	p := b.foreign(target.Egress, toPort(81)) // another flow
	s := tr.streams[0]
	from, most := s.sent, 0
	for range 5 {
		start := time.Now()
		tr.beside(t, 30, func() error { return e.Set(t.Context(), p, qdisc.Netem{Delay: ms}, time.Time{}) })
		if notes := e.Notes(p); len(notes) != 1 {
			t.Errorf("notes: %q", notes)
		}
		tr.beside(t, 150, func() error {
			err := e.Clear(t.Context(), p)
			e.drains.Wait()
			return err
		})
		most = int(time.Since(start) / ms)
	}
	lost := int(s.sent-from) - tr.await(s, span{from, s.sent})
	t.Logf("%d of %d packets, 1 ms apart, were lost to 5 clsacts made and removed", lost, s.sent-from)
	if lost > most/2 {
		t.Errorf("%d packets were lost", lost)
	}
}

// A loss hits its share of its flow, and the counters agree with what came.
func TestDetourLoss(t *testing.T) { bothWays(t, testDetourLoss) }

func testDetourLoss(t *testing.T) {
	testenv.Netem(t)
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		b := newBench(t)
		e := detourEngine(t, b.near)
		s := streamTo(80)
		s.back = hook == target.Ingress
		tr := b.flows(t, s)
		tr.known(t)
		p := b.foreign(hook, toPort(80))
		if s.back {
			p.Match = p.Match.Reverse()
		}
		e.must(t, p, qdisc.Netem{Loss: 20, Duplicate: 5})
		const count = 2000
		r := tr.rounds(t, count)[s]
		got := tr.await(s, r)
		// Netem draws for the duplicate first, and loses one of two as if it were the one:
		// a packet with a duplicate is never lost. 5 standard deviations of a binomial count.
		share := .2 * .95
		if lost, bound := float64(count-got), 5*math.Sqrt(count*share*(1-share)); math.Abs(lost-count*share) > bound {
			t.Errorf("%s: %v of %d lost, want %.0f +-%.0f", hook, lost, count, count*share, bound)
		}
		st, err := e.Read(t.Context(), p)
		if err != nil || st.Counters.Seen != count || st.Queued != 0 || st.Counters.Overflow != 0 {
			t.Errorf("%s: %+v, %v", hook, st, err)
		}
	}
}

// A few duplicates of one flow beside another fault on the same device: neither meets
// the other's.
func TestDuplicatesBesideAnother(t *testing.T) { bothWays(t, testDuplicatesBesideAnother) }

func testDuplicatesBesideAnother(t *testing.T) {
	testenv.Netem(t)
	b := newBench(t)
	e := detourEngine(t, b.near)
	a, z := streamTo(80), streamTo(81)
	tr := b.flows(t, a, z)
	tr.known(t)
	e.must(t, b.foreign(target.Egress, toPort(80)), qdisc.Netem{Delay: 20 * ms})
	e.must(t, b.foreign(target.Egress, toPort(81)), qdisc.Netem{Duplicate: 5})
	count := amount()
	tr.whole(t, tr.rounds(t, count))
	tr.mu.Lock()
	defer tr.mu.Unlock()
	// 5 standard deviations of a binomial count.
	mean := .05 * float64(count)
	if got, bound := float64(tr.copies[z.id]), 5*math.Sqrt(mean*.95); math.Abs(got-mean) > bound || tr.copies[a.id] != 0 {
		t.Errorf("%v of %d came twice, want %.0f +-%.0f; of the other flow %d", got, count, mean, bound, tr.copies[a.id])
	}
}

// What waits when a fault is cleared keeps its time, and comes.
func TestDetourDrains(t *testing.T) { bothWays(t, testDetourDrains) }

func testDetourDrains(t *testing.T) {
	testenv.Netem(t)
	b := newBench(t)
	e := detourEngine(t, b.near)
	tr := b.flows(t, streamTo(80))
	tr.known(t)
	s, p := tr.streams[0], b.foreign(target.Egress, toPort(80))
	const delay, count = 500 * ms, 50
	e.must(t, p, qdisc.Netem{Delay: delay})
	r := tr.rounds(t, count)[s]
	if st, err := e.Read(t.Context(), p); err != nil || st.Queued == 0 || st.Queued > count {
		t.Errorf("%d of %d wait, %v", st.Queued, count, err)
	}
	if err := e.Clear(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	after := tr.rounds(t, 10)[s]
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if got, later := tr.await(s, r), tr.await(s, after); got != count || later != 10 {
		t.Errorf("%d of %d came, and %d of 10 after them", got, count, later)
	}
	for n := r.from; n < r.to; n++ {
		if took := tr.took(s, n); took < delay {
			t.Errorf("packet %d took %v", n, took)
		}
	}
}

// Filters behind ours see what is not selected, and of what is nothing.
func TestFiltersBehind(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	a, z := streamTo(80), streamTo(81)
	tr := b.flows(t, a, z)
	tr.known(t)
	b.tc(t, "qdisc add dev v0 clsact")
	for i, port := range []string{"80", "81"} {
		b.tc(t, fmt.Sprintf("filter add dev v0 egress pref %d protocol ip u32 match ip dport %s 0xffff action mirred egress mirror dev lo", 8+i, port))
	}
	e.must(t, b.foreign(target.Egress, toPort(80)), qdisc.Netem{Delay: ms})
	spans := tr.rounds(t, 10)
	for _, s := range tr.streams {
		if got := tr.await(s, spans[s]); got != 10 {
			t.Errorf("port %s: %d of 10 came", s.name, got)
		}
	}
	for pref, want := range map[string]string{"8": " 0 pkt", "9": " 10 pkt"} {
		if text, err := tcOf(b.near, words("-s filter show dev v0 egress pref "+pref)...); err != nil || !strings.Contains(text, want) {
			t.Errorf("want%s, %v:\n%s", want, err, text)
		}
	}
}
