package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"netemd/internal/testenv"
	"netemd/namespaces"
)

// cable is two hosts, each a namespace, with a veth pair between them: v0 here, v1
// there. Nothing of it is netemd's.
type cable struct {
	t           *testing.T
	here, there string
}

// The addresses of a cable. There are three of the other end: two of IPv4, one of
// IPv6.
var (
	hereFour   = netip.MustParseAddr("10.80.0.1")
	hereSix    = netip.MustParseAddr("fd80::1")
	thereFour  = netip.MustParseAddr("10.80.0.2")
	thereOther = netip.MustParseAddr("10.80.0.3")
	thereSix   = netip.MustParseAddr("fd80::2")
)

var spaces atomic.Int32

// space makes a namespace until the test ends.
func space(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	name := fmt.Sprintf("nt-e2e-%d-%d", os.Getpid(), spaces.Add(1))
	if err := namespaces.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespaces.Delete(name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// lay makes a cable until the test ends.
func lay(t *testing.T) *cable {
	t.Helper()
	c := &cable{t: t, here: space(t), there: space(t)}
	end := func(namespace, device string, addrs ...netip.Addr) namespaces.VethEnd {
		e := namespaces.VethEnd{Namespace: namespace, Name: device}
		for _, a := range addrs {
			bits := 24
			if a.Is6() {
				bits = 64
			}
			e.Addresses = append(e.Addresses, netip.PrefixFrom(a, bits))
		}
		return e
	}
	err := namespaces.CreateVeth(end(c.here, "v0", hereFour, hereSix), end(c.there, "v1", thereFour, thereOther, thereSix))
	if err != nil {
		t.Fatal(err)
	}
	// The kernel tells of the carrier, and makes addresses reachable, in workers of its
	// own; until then it drops packets.
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if strings.Count(c.tree(), "state UP") == 2 && slices.Equal(c.pass(1, to(thereFour, 9), to(thereSix, 9)), []int{1, 1}) {
			return c
		}
		if time.Now().After(until) {
			t.Fatalf("the cable carries no packets:\n%s", c.tree())
		}
	}
}

// flow is UDP from here to an address and port there, or back. The port is the one
// there; here it is any.
type flow struct {
	peer netip.AddrPort
	back bool
}

// to is a flow to the other end, from one that comes from it.
func to(peer netip.Addr, port uint16) flow   { return flow{peer: netip.AddrPortFrom(peer, port)} }
func from(peer netip.Addr, port uint16) flow { return flow{netip.AddrPortFrom(peer, port), true} }

// pass sends n numbered packets on each flow, in turn, and returns how many different
// ones of each arrived.
func (c *cable) pass(n int, flows ...flow) []int {
	c.t.Helper()
	counts := make([]int, len(flows))
	for i, a := range c.send(n, flows...) {
		counts[i] = len(a.numbers)
	}
	return counts
}

// arrivals are what arrived of one flow.
type arrivals struct {
	// numbers are those of the packets, each once, sorted.
	numbers []uint32
	// fastest is the shortest time that one of them took.
	fastest time.Duration
}

// gap is the time between two rounds of packets, and quiet how long nothing has to
// arrive until the last did.
const (
	gap   = time.Millisecond
	quiet = 250 * time.Millisecond
)

// send is pass that tells more.
func (c *cable) send(n int, flows ...flow) []arrivals {
	c.t.Helper()
	var (
		wg      sync.WaitGroup
		last    atomic.Int64
		seen    = make([]map[uint32]bool, len(flows))
		arrived = make([]arrivals, len(flows))
		senders = make([]*net.UDPConn, len(flows))
	)
	last.Store(time.Now().UnixNano())
	ctx, cancel := context.WithCancel(c.t.Context())
	defer wg.Wait()
	defer cancel()
	for i, f := range flows {
		here := hereFour
		if f.peer.Addr().Is6() {
			here = hereSix
		}
		a := c.open(c.here, netip.AddrPortFrom(here, 0), f.peer)
		b := c.open(c.there, f.peer, a.LocalAddr().(*net.UDPAddr).AddrPort())
		receiver := b
		if senders[i] = a; f.back {
			senders[i], receiver = b, a
		}
		seen[i], arrived[i].fastest = map[uint32]bool{}, time.Hour
		stop := context.AfterFunc(ctx, func() { _ = receiver.SetReadDeadline(time.Now()) })
		wg.Go(func() {
			defer a.Close()
			defer b.Close()
			defer stop()
			buf := make([]byte, 64)
			for {
				size, err := receiver.Read(buf)
				if err != nil && ctx.Err() != nil {
					return
				}
				if err != nil || size != 16 {
					continue // refused by a port that was closed a moment ago
				}
				now := time.Now().UnixNano()
				last.Store(now)
				seen[i][binary.BigEndian.Uint32(buf)] = true
				arrived[i].fastest = min(arrived[i].fastest, time.Duration(now-int64(binary.BigEndian.Uint64(buf[8:]))))
			}
		})
	}
	packet := make([]byte, 16)
	next := time.Now()
	for k := range n {
		binary.BigEndian.PutUint32(packet, uint32(k))
		for _, s := range senders {
			binary.BigEndian.PutUint64(packet[8:], uint64(time.Now().UnixNano()))
			_, _ = s.Write(packet) // a drop at the device's own queue is told here; it is a lost packet
		}
		next = next.Add(gap)
		time.Sleep(time.Until(next))
	}
	sent := time.Now()
	for time.Since(sent) < quiet || time.Now().UnixNano()-last.Load() < int64(quiet) {
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	wg.Wait()
	for i := range flows {
		arrived[i].numbers = slices.Sorted(maps.Keys(seen[i]))
	}
	return arrived
}

// open makes a UDP socket between two addresses. An earlier call's may still be
// closing on the same port.
func (c *cable) open(namespace string, local, peer netip.AddrPort) (conn *net.UDPConn) {
	c.t.Helper()
	err := namespaces.Do(c.t.Context(), namespace, func() error {
		d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(local), Control: reusePort}
		s, err := d.DialContext(c.t.Context(), "udp", peer.String())
		if err == nil {
			conn = s.(*net.UDPConn)
		}
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return conn
}

// lost checks that of n packets each of the flows loses none or all, as the second
// argument says: '.' none, 'x' all.
func (c *cable) lost(what string, n int, marks string, flows ...flow) {
	c.t.Helper()
	var got strings.Builder
	counts := c.pass(n, flows...)
	for _, k := range counts {
		switch k {
		case n:
			got.WriteByte('.')
		case 0:
			got.WriteByte('x')
		default:
			got.WriteByte('?')
		}
	}
	if got.String() != marks {
		c.t.Errorf("%s: of %d packets each %v arrived at %v: %s, want %s (x: all lost, .: none)", what, n, counts, flows, got.String(), marks)
	}
}

// tree is what tc and ip say of the cable's devices, their qdiscs, classes and filters.
func (c *cable) tree() string {
	c.t.Helper()
	var all strings.Builder
	for _, end := range []struct{ namespace, device string }{{c.here, "v0"}, {c.there, "v1"}} {
		ask := exec.Command("tc", "-n", end.namespace, "-d", "-batch", "-")
		ask.Stdin = strings.NewReader(strings.ReplaceAll("qdisc show\nclass show dev DEV\nfilter show dev DEV\n"+
			"filter show dev DEV ingress\nfilter show dev DEV egress\n", "DEV", end.device))
		for _, cmd := range []*exec.Cmd{exec.Command("ip", "-n", end.namespace, "-d", "link", "show"), ask} {
			r := run(c.t, cmd)
			fmt.Fprintf(&all, "%s: %d\n%s", cmd, r.code, r.stdout)
		}
	}
	return all.String()
}

// tc runs tc here, and has to succeed.
func (c *cable) tc(args string) {
	c.t.Helper()
	if r := in(c.t, c.here, append([]string{"tc"}, strings.Fields(args)...)...); r.code != 0 {
		c.t.Fatalf("tc %s: %s", args, r.stderr)
	}
}
