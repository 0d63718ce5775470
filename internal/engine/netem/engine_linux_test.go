package netem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

func TestMain(m *testing.M) {
	if order := os.Getenv(dieEnv); order != "" {
		dying(order)
	}
	testenv.Main(m)
}

const ms = time.Millisecond

// bench is two namespaces joined by a veth pair. Packets from near to far leave
// by place.
type bench struct {
	near, far string
	place     target.Place
	links     *netlink.Handle // in near
}

var benches int

func handleAt(netnsFD int) (*netlink.Handle, error) {
	return netlink.NewHandleAt(netns.NsHandle(netnsFD))
}

func newBench(t testing.TB) *bench {
	t.Helper()
	testenv.Root(t)
	benches++
	b := &bench{near: fmt.Sprintf("nt-netem-%d-%da", os.Getpid(), benches), far: fmt.Sprintf("nt-netem-%d-%db", os.Getpid(), benches)}
	for _, name := range []string{b.near, b.far} {
		if err := namespaces.Create(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = namespaces.Delete(name) })
	}
	end := func(ns, address string) namespaces.VethEnd {
		return namespaces.VethEnd{Namespace: ns, Name: "v0", Addresses: []netip.Prefix{netip.MustParsePrefix(address)}}
	}
	if err := namespaces.CreateVeth(end(b.near, "10.99.0.1/24"), end(b.far, "10.99.0.2/24")); err != nil {
		t.Fatal(err)
	}
	ns, err := namespaces.Open(b.near)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	b.links, err = handleAt(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.links.Close)
	l, err := b.links.LinkByName("v0")
	if err != nil {
		t.Fatal(err)
	}
	b.place = target.Place{Namespace: b.near, Device: "v0", Index: l.Attrs().Index, Hook: target.Egress, Owned: true}
	return b
}

// root reads the root qdisc, without the engine.
func (b *bench) root(t *testing.T) qdisc.State {
	t.Helper()
	c, err := New(Config{}).connect(target.Place{Namespace: b.near})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Root(nameOf(b.place))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// arrival is a datagram that came through.
type arrival struct {
	number int
	took   time.Duration
}

// send sends count datagrams, one every gap, and returns those that arrived, in
// their order, waiting 1 s after the last. during is called before each.
func (b *bench) send(t *testing.T, count int, gap time.Duration, during func(i int)) []arrival {
	t.Helper()
	var from, to net.PacketConn
	open := func(ns, address string, conn *net.PacketConn) {
		err := namespaces.Do(t.Context(), ns, func() (err error) {
			*conn, err = net.ListenPacket("udp4", address)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	open(b.near, "10.99.0.1:0", &from)
	defer from.Close()
	open(b.far, "10.99.0.2:0", &to)
	defer to.Close()
	// The receiver must lose nothing itself; as root it may exceed rmem_max.
	raw, err := to.(*net.UDPConn).SyscallConn()
	if err == nil {
		var refused error
		err = raw.Control(func(fd uintptr) {
			refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 32<<20)
		})
		err = errors.Join(err, refused)
	}
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	arrived := make(chan []arrival)
	go func() {
		var all []arrival
		buf := make([]byte, 100)
		for {
			n, _, err := to.ReadFrom(buf)
			if err != nil {
				arrived <- all
				return
			}
			var a arrival
			var sent time.Duration
			// A corrupted number is no number.
			if _, err := fmt.Sscanf(string(buf[:n]), "%d %d", &a.number, &sent); err == nil {
				a.took = time.Since(start) - sent
				all = append(all, a)
			}
		}
	}()
	for i := range count {
		if during != nil {
			during(i)
		}
		if _, err := from.WriteTo(fmt.Appendf(nil, "%d %d", i, time.Since(start)), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(gap)
	}
	if err := to.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	return <-arrived
}

func TestRefusals(t *testing.T) {
	b := newBench(t)
	e := New(Config{})
	ctx := t.Context()
	loss := qdisc.Netem{Loss: 20}

	if err := e.Neutral(ctx, b.foreign(target.Egress)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a neutral root on a device of others: %v", err)
	}
	ingress := b.place
	ingress.Hook = target.Ingress
	loopback := b.foreign(target.Ingress)
	loopback.Device, loopback.Index = "lo", 1
	for name, p := range map[string]target.Place{"own ingress": ingress, "ingress of lo": loopback} {
		if err := e.Set(ctx, p, loss, time.Time{}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	gone := map[string]target.Place{"device": b.place, "namespace": b.place, "dry run": b.place}
	for name, p := range gone {
		switch name {
		case "device":
			p.Index = 999
		case "namespace":
			p.Namespace = "nt-netem-no-such"
		case "dry run":
			p.Index = 0
		}
		if err := e.Set(ctx, p, loss, time.Time{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("set, no %s: %v", name, err)
		}
		if _, err := e.Read(ctx, p); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("read, no %s: %v", name, err)
		}
		if err := e.Clear(ctx, p); err != nil {
			t.Errorf("clear, no %s: %v", name, err)
		}
	}
	if err := e.Set(ctx, b.place, qdisc.Netem{Loss: 120}, time.Time{}); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("loss 120%%: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := e.Set(cancelled, b.place, loss, time.Time{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if s := b.root(t); s.Handle != 0 {
		t.Errorf("the device's root is now %v", s)
	}
}

func TestForeignRoot(t *testing.T) {
	b := newBench(t)
	tbf := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: b.place.Index, Parent: netlink.HANDLE_ROOT, Handle: 0x77_0000},
		Rate:       1e6, Buffer: 1e5, Limit: 1e6,
	}
	if err := b.links.QdiscAdd(tbf); err != nil {
		t.Fatal(err)
	}
	e := New(Config{})
	for name, err := range map[string]error{
		"neutral": e.Neutral(t.Context(), b.place),
		"set":     e.Set(t.Context(), b.place, qdisc.Netem{Loss: 20}, time.Time{}),
	} {
		var conflict *ConflictError
		if !errors.As(err, &conflict) || !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "foreign root, tbf 77:") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if st, err := e.Read(t.Context(), b.place); err != nil || st.Netem != (qdisc.Netem{}) {
		t.Errorf("read: %v, %v", st.Netem, err)
	}
	if err := e.Clear(t.Context(), b.place); err != nil {
		t.Errorf("clear: %v", err)
	}
	if s := b.root(t); s.String() != "tbf 77:" {
		t.Errorf("the foreign root became %v", s)
	}
}

func TestNoNetem(t *testing.T) {
	b := newBench(t)
	err := New(Config{}).Neutral(t.Context(), b.place)
	if err == nil {
		t.Skip("this kernel has sch_netem")
	}
	if !errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestLife(t *testing.T) {
	testenv.Netem(t)
	b := newBench(t)
	e := New(Config{})
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(e.Neutral(ctx, b.place))
	if s := b.root(t); !s.Ours() || !s.Netem.IsZero() || s.Netem.Limit != qdisc.DefaultLimit {
		t.Fatalf("neutral: %v %+v", s, s.Netem)
	}
	made := b.root(t).Stats
	check(e.Neutral(ctx, b.place)) // once more
	read := func(want qdisc.Netem) {
		t.Helper()
		st, err := e.Read(ctx, b.place)
		check(err)
		if want != (qdisc.Netem{}) {
			want = want.Normalize()
		}
		if diff := cmp.Diff(want, st.Netem); diff != "" {
			t.Errorf("in force (-want +got):\n%s", diff)
		}
	}
	read(qdisc.Netem{})
	for _, n := range []qdisc.Netem{
		{Loss: 20},
		{Loss: 20, LossCorrelation: 25, Delay: 100 * ms, Jitter: 20 * ms, Distribution: qdisc.Normal},
		{Delay: 100 * ms, Jitter: 20 * ms, Distribution: qdisc.Uniform},
		{Delay: 10 * ms, Reorder: 25, Duplicate: 1, Corrupt: .01, Limit: 50},
	} {
		check(e.Set(ctx, b.place, n, time.Time{}))
		read(n)
	}
	other := b.place
	other.Match.Include = []target.Flow{{Protocol: 17}}
	if err := e.Set(ctx, other, qdisc.Netem{Loss: 1}, time.Time{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("another flow on the device: %v", err)
	}
	check(e.Clear(ctx, other)) // not its own
	if b.root(t).Netem.IsZero() {
		t.Error("another flow's clear cleared")
	}
	check(e.Clear(ctx, b.place))
	check(e.Clear(ctx, b.place))
	read(qdisc.Netem{})
	if s := b.root(t); !s.Ours() || s.Other != nil || s.Netem.Limit != qdisc.DefaultLimit || s.Stats.Packets < made.Packets {
		t.Errorf("cleared: %v %+v", s, s.Netem)
	}
	check(e.Set(ctx, other, qdisc.Netem{Loss: 1}, time.Time{}))

	// An engine that starts anew finds and clears it.
	again := New(Config{})
	if st, err := again.Read(ctx, b.place); err != nil || st.Netem.Loss != 1 {
		t.Errorf("after a restart: %v, %v", st.Netem, err)
	}
	check(again.Clear(ctx, b.place))
	if !b.root(t).Netem.IsZero() {
		t.Error("after a restart, nothing was cleared")
	}
	check(again.Set(ctx, b.place, qdisc.Netem{Loss: 2}, time.Time{}))
	check(again.Close())
	if !b.root(t).Netem.IsZero() {
		t.Error("Close left an impairment")
	}
	check(namespaces.Delete(b.near))
	if _, err := again.Read(ctx, b.place); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the namespace: %v", err)
	}
}

// What this kernel refuses leaves what was in force.
func TestSetRefused(t *testing.T) {
	testenv.Netem(t)
	b := newBench(t)
	e := New(Config{})
	former := qdisc.Netem{Loss: 7, Delay: 5 * ms, Jitter: ms, Distribution: qdisc.Pareto}
	if err := e.Set(t.Context(), b.place, former, time.Time{}); err != nil {
		t.Fatal(err)
	}
	seeded := qdisc.Netem{Loss: 20, Corrupt: 1, Seed: 42}
	err := e.Set(t.Context(), b.place, seeded, time.Time{})
	want := former
	if err == nil { // Linux 6.6 or later
		want = seeded
	} else if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "seed") {
		t.Errorf("seed: %v", err)
	}
	if st, err := e.Read(t.Context(), b.place); err != nil || st.Netem != want.Normalize() {
		t.Errorf("in force is %v, %v, want %v", st.Netem, err, want)
	}
}

// Somebody else's change of a root of ours is seen, and Set ends it.
func TestDrift(t *testing.T) {
	testenv.Netem(t)
	b := newBench(t)
	e := New(Config{})
	n := qdisc.Netem{Loss: 20}
	if err := e.Set(t.Context(), b.place, n, time.Time{}); err != nil {
		t.Fatal(err)
	}
	attrs := netlink.QdiscAttrs{LinkIndex: b.place.Index, Parent: netlink.HANDLE_ROOT, Handle: qdisc.Handle}
	if err := b.links.QdiscChange(netlink.NewNetem(attrs, netlink.NetemQdiscAttrs{Loss: 3, Rate64: 1e6})); err != nil {
		t.Fatal(err)
	}
	if st, err := e.Read(t.Context(), b.place); err != nil || st.Netem.Rate != 1e6 || math.Abs(float64(st.Netem.Loss)-3) > .01 {
		t.Errorf("a rate of somebody else: %v, %v", st.Netem, err)
	}
	if err := e.Set(t.Context(), b.place, n, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if st, err := e.Read(t.Context(), b.place); err != nil || st.Netem != n.Normalize() {
		t.Errorf("set again: %v, %v", st.Netem, err)
	}
	if err := b.links.QdiscDel(netlink.NewNetem(attrs, netlink.NetemQdiscAttrs{})); err != nil {
		t.Fatal(err)
	}
	if st, err := e.Read(t.Context(), b.place); err != nil || st.Netem != (qdisc.Netem{}) {
		t.Errorf("deleted by somebody else: %v, %v", st.Netem, err)
	}
	if err := e.Clear(t.Context(), b.place); err != nil {
		t.Error(err)
	}
}

// addAddress adds an address to a device of the calling thread's namespace, without
// duplicate address detection.
func addAddress(device string, p netip.Prefix) error {
	l, err := netlink.LinkByName(device)
	if err != nil {
		return err
	}
	ip := net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	return netlink.AddrAdd(l, &netlink.Addr{IPNet: &ip, Flags: unix.IFA_F_NODAD})
}
