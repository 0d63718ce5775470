package evidence

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/probe"
)

var pairs atomic.Int32

// pair is two namespaces and a cable between them.
type pair struct {
	client, server             string
	clientCookie, serverCookie uint64
}

const device = "v0"

var (
	clientMAC = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	serverMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	client4   = netip.MustParsePrefix("10.99.0.1/24")
	server4   = netip.MustParsePrefix("10.99.0.2/24")
	client6   = netip.MustParsePrefix("fd99::1/64")
	server6   = netip.MustParsePrefix("fd99::2/64")
)

func newPair(t *testing.T) pair {
	t.Helper()
	testenv.Root(t)
	prefix := fmt.Sprintf("nt-ev-%d-%d-", os.Getpid(), pairs.Add(1))
	p := pair{client: prefix + "c", server: prefix + "s"}
	for _, n := range []struct {
		name   string
		cookie *uint64
	}{{p.client, &p.clientCookie}, {p.server, &p.serverCookie}} {
		if err := namespaces.Create(n.name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := namespaces.Delete(n.name); err != nil {
				t.Error(err)
			}
		})
		ns, err := namespaces.Open(n.name)
		if err != nil {
			t.Fatal(err)
		}
		*n.cookie, err = ns.Cookie()
		_ = ns.Close()
		if err != nil {
			t.Fatal(err)
		}
	}
	err := namespaces.CreateVeth(
		namespaces.VethEnd{Namespace: p.client, Name: device, Addresses: []netip.Prefix{client4, client6}, HardwareAddress: clientMAC},
		namespaces.VethEnd{Namespace: p.server, Name: device, Addresses: []netip.Prefix{server4, server6}, HardwareAddress: serverMAC})
	if err != nil {
		t.Fatal(err)
	}
	// address resolution may not be taken for a lost packet
	p.neighbours(t, p.client, serverMAC, server4.Addr(), server6.Addr())
	p.neighbours(t, p.server, clientMAC, client4.Addr(), client6.Addr())
	return p
}

func (p pair) neighbours(t *testing.T, namespace string, mac net.HardwareAddr, addrs ...netip.Addr) {
	t.Helper()
	p.in(t, namespace, func() error {
		// Go asks once, wherever it is at the time, whether there is IPv6, on ::1
		for _, name := range []string{"lo", device} {
			l, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(l); err != nil {
				return err
			}
		}
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			n := &netlink.Neigh{LinkIndex: l.Attrs().Index, IP: a.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT}
			if err := netlink.NeighSet(n); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p pair) in(t *testing.T, namespace string, f func() error) {
	t.Helper()
	if err := namespaces.Do(context.Background(), namespace, f); err != nil {
		t.Fatal(err)
	}
}

// cubic makes a socket's behaviour that of a lab, whatever the host's default is.
func cubic(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) { _ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic") })
}

// listen serves an echo on every address of the server.
func (p pair) listen(t *testing.T) uint16 {
	t.Helper()
	var l net.Listener
	p.in(t, p.server, func() (err error) {
		c := net.ListenConfig{Control: cubic}
		c.SetMultipathTCP(false)
		l, err = c.Listen(context.Background(), "tcp", ":0")
		return err
	})
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(onlyWriter{c}, c) // no splice: it would pass segments on as they come
			}()
		}
	}()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

type onlyWriter struct{ io.Writer }

// talk connects, writes writes times 1000 bytes, each as a segment of its own, and
// reads them back. It returns how long the handshake took and the client's end.
func (p pair) talk(t *testing.T, to netip.AddrPort, writes int) (connect time.Duration, local netip.AddrPort) {
	t.Helper()
	var c net.Conn
	p.in(t, p.client, func() (err error) {
		at := time.Now()
		d := net.Dialer{Control: cubic, Timeout: 20 * time.Second}
		c, err = d.Dial("tcp", to.String())
		connect = time.Since(at)
		return err
	})
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	b := make([]byte, 1000)
	for range writes {
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.ReadFull(c, make([]byte, writes*len(b))); err != nil {
		t.Fatal(err)
	}
	a := c.LocalAddr().(*net.TCPAddr).AddrPort()
	return connect, netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// TestCollector loses chosen segments and wants exactly the retransmissions that
// follow, and the namespaces' own counters to agree.
func TestCollector(t *testing.T) {
	const c, s = false, true // who sends again
	type again struct {
		Server bool
		Cause  probe.Cause
	}
	tests := []struct {
		name string
		// at is the end whose segments are dropped
		at     bool
		drop   segment
		count  int32
		to     netip.Addr
		writes int
		want   []again
		// atLeast: the kernel may send more than want, in any order
		atLeast bool
		connect time.Duration
	}{
		{name: "first SYN", at: c, drop: syn, count: 1, to: server4.Addr(), want: []again{{c, probe.SYNRetransmit}}, connect: time.Second},
		{name: "first SYN, IPv6", at: c, drop: syn, count: 1, to: server6.Addr(), want: []again{{c, probe.SYNRetransmit}}, connect: time.Second},
		// the client's timer and the server's fire at about the same time, in either order
		{name: "first SYN-ACK", at: s, drop: synACK, count: 1, to: server4.Addr(), want: []again{{s, probe.SYNRetransmit}}, atLeast: true, connect: time.Second},
		{name: "first SYN-ACK, IPv6", at: s, drop: synACK, count: 1, to: server6.Addr(), want: []again{{s, probe.SYNRetransmit}}, atLeast: true, connect: time.Second},
		{name: "tail", at: c, drop: data, count: 1, to: server4.Addr(), writes: 1, want: []again{{c, probe.TLP}}},
		{name: "tail, IPv6", at: c, drop: data, count: 1, to: server6.Addr(), writes: 1, want: []again{{c, probe.TLP}}},
		// the listener is an IPv6 socket that talks IPv4
		{name: "tail of the server", at: s, drop: data, count: 1, to: server4.Addr(), writes: 1, want: []again{{s, probe.TLP}}},
		{name: "tail and its probe", at: c, drop: data, count: 2, to: server4.Addr(), writes: 1, want: []again{{c, probe.TLP}, {c, probe.RTO}}},
		{name: "tail, probe and first timeout", at: c, drop: data, count: 3, to: server4.Addr(), writes: 1, want: []again{{c, probe.TLP}, {c, probe.RTO}, {c, probe.RTO}}},
		{name: "first of eight", at: c, drop: data, count: 1, to: server4.Addr(), writes: 8, want: []again{{c, probe.FastRetransmit}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			port := p.listen(t)
			at := p.client
			if test.at == s {
				at = p.server
			}
			dropFirst(t, at, device, test.drop, test.count)
			before := p.counters(t)
			col, err := Start(Config{Cookies: []uint64{p.clientCookie, p.serverCookie}})
			if err != nil {
				t.Fatal(err)
			}
			from := now(t)
			to := netip.AddrPortFrom(test.to, port)
			connect, local := p.talk(t, to, test.writes)
			until := now(t)
			counted := p.counters(t).Since(before)
			events, lost, err := col.Stop()
			if err != nil || lost != 0 {
				t.Fatalf("stop: %d records lost, %v", lost, err)
			}

			var got []again
			causes := map[probe.Cause]int{}
			for _, e := range events {
				server := e.Cookie == p.serverCookie
				ends := [2]netip.AddrPort{local, to}
				if server {
					ends = [2]netip.AddrPort{to, local}
				} else if e.Cookie != p.clientCookie {
					t.Errorf("event of a foreign namespace: %+v", e)
				}
				if e.Local != ends[0] || e.Remote != ends[1] {
					t.Errorf("%+v: want the ends %v", e, ends)
				}
				if e.TimeNS < from || e.TimeNS > until {
					t.Errorf("event at %d, want within %d..%d", e.TimeNS, from, until)
				}
				got = append(got, again{server, e.Cause})
				causes[e.Cause]++
			}
			// An emulated machine answers late enough for tail loss probes of its own; the
			// kernel's counters must agree with the events all the same.
			if test.atLeast || os.Getenv("NETEMD_TEST_VM") != "" {
				for _, w := range test.want {
					if !slices.Contains(got, w) {
						t.Errorf("retransmissions %v lack %v", got, w)
					}
				}
			} else if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("retransmissions (-want +got):\n%s\nevents: %+v", d, events)
			}
			if d := cmp.Diff(causes, counted.Causes()); d != "" {
				t.Errorf("namespaces' counters %+v disagree (-events +counters):\n%s", counted, d)
			}
			// on a slow machine the handshake may take longer, but not until the next retry
			if connect < test.connect || connect > test.connect+900*time.Millisecond {
				t.Errorf("handshake took %v, want %v", connect, test.connect)
			}
		})
	}
}

func (p pair) counters(t *testing.T) Counters {
	t.Helper()
	a, err := ReadCounters(context.Background(), p.client)
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadCounters(context.Background(), p.server)
	if err != nil {
		t.Fatal(err)
	}
	return a.Plus(b)
}

func now(t *testing.T) int64 {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		t.Fatal(err)
	}
	return ts.Nano()
}

// TestLostRecords fills a ring that nobody reads: what does not fit is counted.
// TestDrain: what has been drained is not told again, and what the kernel reported
// before is there at once.
func TestDrain(t *testing.T) {
	p := newPair(t)
	to := netip.AddrPortFrom(server4.Addr(), p.listen(t))
	col, err := Start(Config{Cookies: []uint64{p.clientCookie, p.serverCookie}})
	if err != nil {
		t.Fatal(err)
	}
	count := func(events []probe.Retransmission, local netip.AddrPort) (n int) {
		for _, e := range events {
			if e.Cause == probe.SYNRetransmit && e.Local == local {
				n++
			}
		}
		return n
	}
	dropFirst(t, p.client, device, syn, 1)
	_, first := p.talk(t, to, 0)
	events, err := col.Drain()
	if n := count(events, first); err != nil || n == 0 {
		t.Errorf("the drain after a lost SYN has %d events of it, %v", n, err)
	}
	again, err := col.Drain()
	if n := count(again, first); err != nil || n != 0 {
		t.Errorf("the second drain has %d old events, %v", n, err)
	}
	rest, lost, err := col.Stop()
	if n := count(rest, first); err != nil || lost != 0 || n != 0 {
		t.Errorf("the end has %d old events, %d lost, %v", n, lost, err)
	}
}

func TestLostRecords(t *testing.T) {
	p := newPair(t)
	dropFirst(t, p.client, device, syn, 1<<30)
	page := os.Getpagesize()
	col, err := open(Config{Cookies: []uint64{p.clientCookie}, Buffer: page})
	if err != nil {
		t.Fatal(err)
	}
	fits := page / (recSize + 8) // the kernel's header of a record, BPF_RINGBUF_HDR_SZ
	connects := 2 * fits
	var fds []int
	p.in(t, p.client, func() error {
		for range connects {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
			if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: server4.Addr().As4()}); err != unix.EINPROGRESS {
				return fmt.Errorf("connect: %w", err)
			}
		}
		return nil
	})
	time.Sleep(1500 * time.Millisecond) // every SYN is sent again after 1 s
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	counted, err := ReadCounters(context.Background(), p.client)
	if err != nil {
		t.Fatal(err)
	}
	if counted.SYNs < uint64(connects) {
		t.Fatalf("%d SYNs sent again, want at least %d", counted.SYNs, connects)
	}
	col.done.Go(col.read)
	events, lost, err := col.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if len(events) == 0 || len(events) > fits || uint64(len(events))+lost != counted.SYNs {
		t.Errorf("%d events and %d lost, want %d in all and at most %d kept", len(events), lost, counted.SYNs, fits)
	}
}

// TestFilter wants nothing of namespaces that were not asked for.
func TestFilter(t *testing.T) {
	p := newPair(t)
	port := p.listen(t)
	dropFirst(t, p.client, device, data, 1)
	col, err := Start(Config{Cookies: []uint64{p.serverCookie}})
	if err != nil {
		t.Fatal(err)
	}
	p.talk(t, netip.AddrPortFrom(server4.Addr(), port), 1)
	if events, _, err := col.Stop(); err != nil || len(events) != 0 {
		t.Errorf("events %+v, error %v; want none of the client's", events, err)
	}
	if counted, err := ReadCounters(context.Background(), p.client); err != nil || counted.Segments != 1 {
		t.Errorf("counters %+v, error %v; want one retransmission", counted, err)
	}
}
