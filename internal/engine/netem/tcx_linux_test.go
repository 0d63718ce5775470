package netem

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

func needTCX(t testing.TB) {
	t.Helper()
	testenv.Root(t)
	if !haveTCX() {
		t.Skip("this kernel has no tcx (Linux 6.6 or later does)")
	}
}

// families are streams to these ports, of both families.
func families(back bool, ports ...uint16) []*stream {
	var all []*stream
	for _, v6 := range []bool{false, true} {
		for _, port := range ports {
			all = append(all, &stream{
				name: fmt.Sprintf("%s back %t port %d", number(v6), back, port), v6: v6, back: back, protocol: unix.IPPROTO_UDP, port: port,
			})
		}
	}
	return all
}

// whole fails the test unless every packet in those ranges came.
func (tr *traffic) whole(t *testing.T, spans map[*stream]span) {
	t.Helper()
	for _, s := range tr.streams {
		if got, want := tr.await(s, spans[s]), int(spans[s].to-spans[s].from); got != want {
			t.Errorf("%s: %d of %d came", s.name, got, want)
		}
	}
}

// Where there is no clsact, no packet of any flow is lost to a fault's life: it is
// applied, changed, moved to another flow and back, and cleared, over and over.
func TestNothingLost(t *testing.T) {
	needTCX(t)
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			b := newBench(t)
			e := detourEngine(t, b.near)
			tr := b.flows(t, families(hook == target.Ingress, 80, 8080)...)
			tr.known(t)
			before := b.tree(t)
			flow := toPort(80)
			if hook == target.Ingress {
				flow = target.Flow{Protocol: unix.IPPROTO_UDP, SourcePorts: target.Port(80)}
			}
			p, q := b.foreign(hook, flow), b.foreign(hook, flow, target.Flow{Protocol: unix.IPPROTO_ICMP})
			lives, end := 0, make(chan struct{})
			live := func() error {
				for ; ; lives++ {
					for _, act := range []func() error{
						func() error { return e.Set(t.Context(), p, qdisc.Netem{}, time.Time{}) },
						func() error { return e.Set(t.Context(), p, qdisc.Netem{Delay: ms}, time.Time{}) },
						func() error { return e.Rematch(t.Context(), p, q.Match) },
						func() error { return e.Rematch(t.Context(), q, p.Match) },
						func() error { return e.Clear(t.Context(), p) },
					} {
						if err := act(); err != nil {
							return err
						}
						time.Sleep(2 * ms)
					}
					if lives%2 == 0 {
						e.drains.Wait()
					}
					select {
					case <-end:
						return nil
					default:
					}
				}
			}
			count := amount() / 2 // of each family
			time.AfterFunc(time.Duration(count)*ms, func() { close(end) })
			tr.whole(t, tr.beside(t, count, live))
			e.drains.Wait()
			t.Logf("%d packets selected, %d not, through %d lives", 2*count, 2*count, lives+1)
			if after := b.tree(t); after != before {
				t.Errorf("(-before +after):\n%s", cmp.Diff(before, after))
			}
		})
	}
}

// The end of the process ends the fault at once, and loses nothing; nor does the Sweep.
func TestKilledUnderTraffic(t *testing.T) {
	needTCX(t)
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		b := newBench(t)
		sweeper := detourEngine(t, b.near)
		tr := b.flows(t, families(hook == target.Ingress, 80)...)
		tr.known(t)
		for _, at := range []string{"netem.ifb.up", "netem.filter.set", "netem.filter.gone"} {
			tr.whole(t, tr.beside(t, 200, func() error {
				b.kill(t, at, hook)
				_, err := sweptBy(t, sweeper, b.near)
				return err
			}))
		}
	}
}

// Faults at the two ends of a wire see the same packets: nothing of the first one's
// detour is left on a packet.
func TestBothEnds(t *testing.T) { bothWays(t, testBothEnds) }

func testBothEnds(t *testing.T) {
	b := newBench(t)
	tr := b.flows(t, families(false, 80)...)
	tr.known(t)
	near, far := b.foreign(target.Egress, toPort(80)), b.foreign(target.Ingress, toPort(80))
	far.Namespace = b.far
	err := namespaces.Do(t.Context(), b.far, func() error {
		l, err := net.InterfaceByName("v0")
		if err == nil {
			far.Index = l.Index
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	e := detourEngine(t, b.near)
	e.must(t, near, qdisc.Netem{Delay: ms})
	e.must(t, far, qdisc.Netem{Delay: ms})
	tr.whole(t, tr.rounds(t, 50))
	for _, p := range []target.Place{near, far} {
		if st, err := e.Read(t.Context(), p); err != nil || st.Counters.Seen != 100 {
			t.Errorf("%s: seen %d of 100, %v", p, st.Counters.Seen, err)
		}
	}
}

// Where flows overlap, of one agent or of two, a packet meets one fault, and comes once.
func TestOverlap(t *testing.T) { bothWays(t, testOverlap) }

func testOverlap(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		b := newBench(t)
		tr := b.flows(t, families(hook == target.Ingress, 80)...)
		tr.known(t)
		one, two := detourEngine(t, b.near), detourEngine(t, "another agent's")
		places := []target.Place{b.foreign(hook, udp), b.foreign(hook), b.foreign(hook, udp)}
		places[1].Match.Include = []target.Flow{udp, {Protocol: unix.IPPROTO_ICMP}}
		engines := []*Engine{one, one, two}
		for i, p := range places {
			engines[i].must(t, p, qdisc.Netem{Delay: ms})
		}
		tr.whole(t, tr.rounds(t, 50))
		for i, want := range []uint64{0, 0, 100} {
			if st, err := engines[i].Read(t.Context(), places[i]); err != nil || st.Counters.Seen != want {
				t.Errorf("%s, fault %d: seen %d, want %d, %v", hook, i, st.Counters.Seen, want, err)
			}
		}
	}
}

// Beside a fault of the ebpf engine on the same flow, whichever came first, a packet
// meets both, once each, and comes once.
func TestBesideEBPF(t *testing.T) { bothWays(t, testBesideEBPF) }

func testBesideEBPF(t *testing.T) {
	needTCX(t)
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		for _, first := range []string{"ebpf", "netem"} {
			var opened uint64
			for range 5 { // what passed because the machine kept the ebpf engine waiting comes by again
				if opened = besideEBPF(t, hook, first); opened == 0 {
					break
				}
			}
			if opened > 0 {
				t.Errorf("%s, %s first: the ebpf engine was kept waiting each of 5 times, the last time for %d packets", hook, first, opened)
			}
		}
	}
}

// besideEBPF has both engines delay the same packets, and returns how many the ebpf
// engine let pass for being late; only without any it judges.
func besideEBPF(t *testing.T, hook target.Hook, first string) (opened uint64) {
	t.Helper()
	b := newBench(t)
	tr := b.flows(t, families(hook == target.Ingress, 80)...)
	tr.known(t)
	e := detourEngine(t, b.near)
	other, err := ebpf.New(ebpf.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p, n := b.foreign(hook, udp), qdisc.Netem{Delay: 5 * ms}
	if first == "netem" {
		e.must(t, p, n)
	}
	if err := other.Set(t.Context(), p, n, time.Time{}); err != nil {
		t.Fatal(err)
	}
	if first == "ebpf" {
		e.must(t, p, n)
	}
	got := tr.rounds(t, 50)
	queue, err := other.Read(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if queue.Counters.Opened > 0 {
		return queue.Counters.Opened
	}
	tr.whole(t, got)
	st, err := e.Read(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if st.Counters.Seen != 100 || queue.Counters.Seen != 100 {
		t.Errorf("%s, %s first: netem has seen %d of 100, ebpf %d", hook, first, st.Counters.Seen, queue.Counters.Seen)
	}
	return 0
}

// Nothing of ours sends anything by itself, and neighbour discovery goes its way
// beside a fault on everything between two networks.
func TestQuiet(t *testing.T) { bothWays(t, testQuiet) }

func testQuiet(t *testing.T) {
	b := newBench(t)
	if clsactOnly {
		b.tc(t, "qdisc add dev v0 clsact") // to make one may lose an answer
	}
	e := detourEngine(t, b.near)
	tr := b.flows(t, families(false, 80)...)
	b.settled(t)
	both := []target.Flow{{Destination: netip.MustParsePrefix("10.99.0.0/24")}, {Destination: netip.MustParsePrefix("fd99::/64")}}
	out, in := b.foreign(target.Egress, both...), b.foreign(target.Ingress, udp)
	e.must(t, out, qdisc.Netem{Delay: ms})
	e.must(t, in, qdisc.Netem{Delay: ms})
	tr.whole(t, tr.rounds(t, 1)) // neither knows its neighbour yet
	time.Sleep(1200 * ms)
	for p, want := range map[*target.Place]uint64{&out: 2, &in: 0} {
		if st, err := e.Read(t.Context(), *p); err != nil || st.Counters.Seen != want {
			t.Errorf("%s: seen %d, want %d, %v", p.Hook, st.Counters.Seen, want, err)
		}
	}
	links, err := b.links.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if a := l.Attrs(); strings.HasPrefix(a.Name, namePrefix) {
			if addresses, err := b.links.AddrList(l, netlink.FAMILY_ALL); err != nil || len(addresses) > 0 {
				t.Errorf("%s: addresses %v, %v", a.Name, addresses, err)
			}
			if sent := a.Statistics.TxPackets; sent != 0 && sent != 2 {
				t.Errorf("%s %s: sent %d", l.Type(), a.Name, sent)
			}
		}
	}
}

// settled waits until the kernel's workers know that both ends are up, and have made
// their addresses of IPv6 reachable; until then packets are dropped.
func (b *bench) settled(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * ms) {
		up := 0
		for _, ns := range []string{b.near, b.far} {
			err := namespaces.Do(t.Context(), ns, func() error {
				l, err := netlink.LinkByName("v0")
				if err != nil {
					return err
				}
				all, err := netlink.AddrList(l, netlink.FAMILY_V6)
				tentative := slices.ContainsFunc(all, func(a netlink.Addr) bool {
					return a.Scope == unix.RT_SCOPE_UNIVERSE && a.Flags&unix.IFA_F_TENTATIVE != 0
				})
				if l.Attrs().OperState == netlink.OperUp && !tentative {
					up++
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if up == 2 {
			time.Sleep(100 * ms) // an address has its route a little later than it is none that is tried
			return
		}
		if time.Now().After(end) {
			t.Fatal("the devices do not come up")
		}
	}
}

// A packet comes back to the device with its mark and priority, by which the device's
// own qdiscs choose.
func TestDetourKeepsMark(t *testing.T) { bothWays(t, testDetourKeepsMark) }

func testDetourKeepsMark(t *testing.T) {
	b := newBench(t)
	b.tc(t, "qdisc add dev v0 root handle 5: htb default 10")
	for _, class := range []string{"10", "20", "30"} {
		b.tc(t, "class add dev v0 parent 5: classid 5:"+class+" htb rate 1gbit", "qdisc add dev v0 parent 5:"+class+" handle 5"+class+": pfifo limit 1000")
	}
	b.tc(t, "filter add dev v0 parent 5: protocol ip u32 match mark 7 0xffff flowid 5:20")
	detourEngine(t, b.near).must(t, b.foreign(target.Egress, udp), qdisc.Netem{Delay: ms})
	var sink net.PacketConn
	err := namespaces.Do(t.Context(), b.far, func() (err error) {
		sink, err = net.ListenPacket("udp4", "10.99.0.2:80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	err = namespaces.Do(t.Context(), b.near, func() error {
		for _, option := range []struct{ name, value int }{{unix.SO_MARK, 7}, {unix.SO_PRIORITY, 0x5_0030}} {
			d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
				var refused error
				err := c.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, option.name, option.value) })
				if err != nil {
					return err
				}
				return refused
			}}
			conn, err := d.Dial("udp4", "10.99.0.2:80")
			if err != nil {
				return err
			}
			for range 20 {
				if _, err := conn.Write([]byte("hello")); err != nil {
					return err
				}
			}
			time.Sleep(50 * ms)
			_ = conn.Close()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := tcOf(b.near, words("-s qdisc show dev v0")...)
	if err != nil {
		t.Fatal(err)
	}
	for _, handle := range []string{"520:", "530:"} {
		_, stats, _ := strings.Cut(text, "qdisc pfifo "+handle)
		_, stats, _ = strings.Cut(stats, "bytes ")
		var packets int
		if _, err := fmt.Sscan(stats, &packets); err != nil || packets != 20 {
			t.Errorf("%s: %d packets, %v\n%s", handle, packets, err, text)
		}
	}
}

// Where the way by tcx cannot be had, a fault goes by a clsact: without macvlan, and on
// a device without a link header.
func TestClsactInstead(t *testing.T) {
	needTCX(t)
	b := newBench(t)
	e := detourEngine(t, b.near)
	tun := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "tun0"}, Mode: netlink.TUNTAP_MODE_TUN}
	if err := namespaces.Do(t.Context(), b.near, func() error { return netlink.LinkAdd(tun) }); err != nil {
		t.Fatal(err)
	}
	l, err := b.links.LinkByName("tun0")
	if err != nil {
		t.Fatal(err)
	}
	p, headless := b.foreign(target.Egress, udp), b.foreign(target.Ingress, udp)
	headless.Device, headless.Index = "tun0", l.Attrs().Index
	before := b.tree(t)
	macvlanKind = "nt-none"
	defer func() { macvlanKind = "macvlan" }()
	for _, p := range []target.Place{p, headless} {
		e.must(t, p, qdisc.Netem{Delay: ms})
		if text, err := tcOf(b.near, "qdisc", "show", "dev", p.Device, "clsact"); err != nil || !strings.Contains(text, "clsact") {
			t.Errorf("%s: %q, %v", p.Device, text, err)
		}
	}
	if got := len(b.send(t, 20, 0, nil)); got != 20 {
		t.Errorf("%d of 20 came", got)
	}
	if st, err := e.Read(t.Context(), p); err != nil || st.Netem.Delay != ms || st.Counters.Seen != 20 {
		t.Errorf("%v, seen %d, %v", st.Netem, st.Counters.Seen, err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if after := b.tree(t); after != before {
		t.Errorf("(-before +after):\n%s", cmp.Diff(before, after))
	}
	b.tc(t, "qdisc add dev tun0 ingress")
	headless.Hook = target.Egress
	var conflict *ConflictError
	if err := e.Set(t.Context(), headless, qdisc.Netem{Delay: ms}, time.Time{}); !errors.As(err, &conflict) {
		t.Errorf("egress beside an ingress qdisc, where only a clsact will do: %v, want a conflict", err)
	}
}

// Super-packets go through whole, in either direction, and nothing in them is changed.
func TestDetourBulk(t *testing.T) { bothWays(t, testDetourBulk) }

func testDetourBulk(t *testing.T) {
	b := newBench(t)
	b.addresses(t)
	e := detourEngine(t, b.near)
	tcp := target.Flow{Protocol: unix.IPPROTO_TCP}
	for _, address := range []string{"10.99.0.2", "fd99::2"} {
		for _, hook := range []target.Hook{"none", target.Egress, target.Ingress} {
			p := b.foreign(hook, tcp)
			if hook != "none" {
				e.must(t, p, qdisc.Netem{})
			}
			took := b.bulk(t, address, hook == target.Ingress)
			t.Logf("%s %s: %.1f Gbit/s", address, hook, float64(bulkSize)*8/took.Seconds()/1e9)
			if hook == "none" {
				continue
			}
			st, err := e.Read(t.Context(), p)
			if err != nil || st.Counters.Seen < uint64(bulkSize)/1500 {
				t.Errorf("%s %s: seen %d, %v", address, hook, st.Counters.Seen, err)
			}
			l, err := b.links.LinkByName(e.devices[key{p.Namespace, p.Index}].detours[p.Key()].ifb.name)
			if err != nil {
				t.Fatal(err)
			}
			// The device counts super-packets as one.
			if sent := l.Attrs().Statistics.TxPackets; os.Getenv("NETEMD_TEST_VM") == "" && sent > st.Counters.Seen/2 {
				t.Errorf("%s %s: %d segments went through as %d packets", address, hook, st.Counters.Seen, sent)
			}
			if err := e.Clear(t.Context(), p); err != nil {
				t.Error(err)
			}
			e.drains.Wait()
		}
	}
}

// What is in a VLAN goes through the fault of the device below with its tag.
func TestDetourOfVLAN(t *testing.T) { bothWays(t, testDetourOfVLAN) }

func testDetourOfVLAN(t *testing.T) {
	b := newBench(t)
	for ns, address := range map[string]string{b.near: "10.98.0.1/24", b.far: "10.98.0.2/24"} {
		err := namespaces.Do(t.Context(), ns, func() error {
			parent, err := netlink.LinkByName("v0")
			if err != nil {
				return err
			}
			vlan := &netlink.Vlan{LinkAttrs: netlink.NewLinkAttrs(), VlanId: 7}
			vlan.Name, vlan.ParentIndex = "vlan7", parent.Attrs().Index
			if err := netlink.LinkAdd(vlan); err != nil {
				return err
			}
			if err := addAddress("vlan7", netip.MustParsePrefix(address)); err != nil {
				return err
			}
			return netlink.LinkSetUp(vlan)
		})
		if errors.Is(err, unix.EOPNOTSUPP) && os.Getenv("NETEMD_TEST_VM") == "" {
			t.Skip("needs VLAN devices (module 8021q)")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	e := detourEngine(t, b.near)
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		p := b.foreign(hook, target.Flow{Protocol: unix.IPPROTO_TCP})
		e.must(t, p, qdisc.Netem{Delay: ms})
		b.bulk(t, "10.98.0.2", hook == target.Ingress)
		if st, err := e.Read(t.Context(), p); err != nil || st.Counters.Seen < uint64(bulkSize)/1500 {
			t.Errorf("%s: seen %d, %v", hook, st.Counters.Seen, err)
		}
	}
}

// bulkSize is in bytes; less where the machine is an emulated one.
var bulkSize = func() int {
	if os.Getenv("NETEMD_TEST_VM") != "" {
		return 8 << 20
	}
	return 64 << 20
}()

// bulk sends bulkSize bytes by TCP from near to far, or back, and returns how long
// that took.
func (b *bench) bulk(t *testing.T, address string, back bool) time.Duration {
	t.Helper()
	data := make([]byte, 1<<20)
	_, _ = rand.Read(data)
	var listener net.Listener
	var conn, other net.Conn
	err := namespaces.Do(t.Context(), b.far, func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(address, "90"))
		return err
	})
	if err == nil {
		defer listener.Close()
		err = namespaces.Do(t.Context(), b.near, func() (err error) {
			conn, err = net.DialTimeout("tcp", listener.Addr().String(), 5*time.Second)
			return err
		})
	}
	if err == nil {
		defer conn.Close()
		other, err = listener.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	from, to := conn, other
	if back {
		from, to = other, conn
	}
	for _, c := range []net.Conn{from, to} {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	start := time.Now()
	go func() {
		for range bulkSize / len(data) {
			if _, err := from.Write(data); err != nil {
				return
			}
		}
	}()
	got := make([]byte, len(data))
	for range bulkSize / len(data) {
		if _, err := io.ReadFull(to, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, data) {
			t.Fatal("other bytes came than were sent")
		}
	}
	return time.Since(start)
}
