package ebpf

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/child"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

func TestMain(m *testing.M) {
	child.Run()
	// A thread that wakes up needs a free P: without spare ones it waits for the
	// test's own busy goroutines, which a busy machine may have put aside.
	runtime.GOMAXPROCS(8)
	if _, err := os.Stat("/dev/net/tun"); err != nil && inVM {
		// The guest's /dev has no node that would load the module at its first use.
		if out, err := exec.Command("modprobe", "tun").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "modprobe tun: %v: %s\n", err, out)
		}
	}
	testenv.Main(m)
}

// inVM says that every wake-up may be some ms late.
var inVM = os.Getenv("NETEMD_TEST_VM") == "1"

// slower is d, or more on a machine that is late.
func slower(d time.Duration) time.Duration { return testenv.Slower(d) }

// undisturbed runs f until it says nothing; what it says is how the machine disturbed
// it. f makes anew what it needs. A test that is disturbed each time fails.
func undisturbed(t testing.TB, f func() (disturbed string)) {
	t.Helper()
	const tries = 8
	var said string
	for try := range tries {
		if said = f(); said == "" || t.Failed() {
			return
		}
		time.Sleep(time.Duration(try) * 100 * time.Millisecond) // what keeps the machine busy may end
	}
	t.Fatalf("disturbed each of %d times, the last by %s; a sleep of 1 ms ends up to %s late", tries, said, testenv.Lateness())
}

// waited says that packets passed because the machine kept the engine waiting for 50 ms,
// or nothing.
func waited(all ...fault.Counters) string {
	for _, c := range all {
		if c.Opened > 0 {
			return fmt.Sprintf("packets that passed: %+v", all)
		}
	}
	return ""
}

// fewer is n, or less where packets are slow and time is short; for statistics that
// hold with any number.
func fewer(n int) int {
	if inVM && testing.Short() {
		return n / 5
	}
	return n
}

// lab is two namespaces of the test's own with a veth pair.
type lab struct {
	client, server string
	// place is the egress of the client's device.
	place target.Place
	// peer is the egress of the server's device.
	peer target.Place
}

const (
	client4, server4 = "10.99.0.1", "10.99.0.2"
	client6, server6 = "fd00:99::1", "fd00:99::2"
	port             = 4000
)

var labs atomic.Int32

func newLab(t testing.TB) *lab {
	t.Helper()
	testenv.Root(t)
	base := fmt.Sprintf("nt-ebpf-%d-%d-", os.Getpid(), labs.Add(1))
	l := &lab{client: base + "a", server: base + "b"}
	for _, name := range []string{l.client, l.server} {
		if err := namespaces.Create(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := namespaces.Delete(name); err != nil {
				t.Error(err)
			}
		})
		l.in(t, name, func() error {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				return err
			}
			return netlink.LinkSetUp(lo)
		})
	}
	err := namespaces.CreateVeth(
		namespaces.VethEnd{Namespace: l.client, Name: "veth0", Addresses: []netip.Prefix{
			netip.MustParsePrefix(client4 + "/24"), netip.MustParsePrefix(client6 + "/64"),
		}},
		namespaces.VethEnd{Namespace: l.server, Name: "veth0", Addresses: []netip.Prefix{
			netip.MustParsePrefix(server4 + "/24"), netip.MustParsePrefix(server6 + "/64"),
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	l.place = l.at(t, l.client, target.Egress)
	l.peer = l.at(t, l.server, target.Egress)
	// A burst would overflow the queue for an address that is still being resolved.
	mac := map[string]net.HardwareAddr{}
	for _, ns := range []string{l.client, l.server} {
		l.in(t, ns, func() error {
			link, err := netlink.LinkByName("veth0")
			if err == nil {
				mac[ns] = link.Attrs().HardwareAddr
			}
			return err
		})
	}
	// Workers of the kernel's tell the devices that there is a carrier, and make addresses of
	// IPv6 local; until then packets are dropped.
	for i, addrs := range [][]string{{client4, client6}, {server4, server6}} {
		p := []target.Place{l.place, l.peer}[i]
		until(t, "carrier and addresses in "+p.Namespace, slower(10*time.Second), func() (ready bool) {
			l.in(t, p.Namespace, func() error {
				link, err := netlink.LinkByIndex(p.Index)
				ready = err == nil && link.Attrs().OperState == netlink.OperUp
				for _, a := range addrs {
					routes, err := netlink.RouteGet(net.ParseIP(a))
					ready = ready && err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL
				}
				return err
			})
			return ready
		})
	}
	l.in(t, l.client, func() error { return permanent(l.place.Index, mac[l.server], server4, server6) })
	l.in(t, l.server, func() error { return permanent(l.peer.Index, mac[l.client], client4, client6) })
	return l
}

func permanent(index int, mac net.HardwareAddr, addrs ...string) error {
	var errs []error
	for _, a := range addrs {
		errs = append(errs, netlink.NeighSet(&netlink.Neigh{
			LinkIndex: index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(a), HardwareAddr: mac,
		}))
	}
	return errors.Join(errs...)
}

func (l *lab) at(t testing.TB, ns string, hook target.Hook) target.Place {
	t.Helper()
	p := target.Place{Namespace: ns, Device: "veth0", Hook: hook, Owned: true}
	l.in(t, ns, func() error {
		link, err := netlink.LinkByName("veth0")
		if err == nil {
			p.Index = link.Attrs().Index
		}
		return err
	})
	return p
}

// in runs f in a namespace and fails the test with its error.
func (l *lab) in(t testing.TB, ns string, f func() error) {
	t.Helper()
	if err := namespaces.Do(context.Background(), ns, f); err != nil {
		t.Fatal(err)
	}
}

// arrival is a numbered packet that came in.
type arrival struct {
	number uint64
	// sent and at are CLOCK_MONOTONIC in ns.
	sent, at int64
}

func (a arrival) delay() time.Duration { return time.Duration(a.at - a.sent) }

// stream is a UDP sender in one namespace and a receiver in the other.
type stream struct {
	t        testing.TB
	out      *net.UDPConn
	in       *net.UDPConn
	done     chan struct{}
	mu       sync.Mutex
	arrivals []arrival
	bad      int
	next     uint64
	sent     []int64 // when each was
}

// newFlow opens it from client to server; from is the sender's port, 0 any.
func (l *lab) newFlow(t testing.TB, client, server string, from, to int) *stream {
	t.Helper()
	f := &stream{t: t, done: make(chan struct{})}
	l.in(t, l.server, func() (err error) {
		f.in, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(server), Port: to})
		return err
	})
	l.in(t, l.client, func() (err error) {
		f.out, err = net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(client), Port: from}, &net.UDPAddr{IP: net.ParseIP(server), Port: to})
		return err
	})
	raw, err := f.in.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20) })
	go f.receive()
	t.Cleanup(func() {
		f.out.Close()
		f.in.Close()
		<-f.done
	})
	return f
}

// pattern fills the rest of each packet, so that a flipped bit that slipped through
// the checksum would show.
const pattern = 0xa5

func (f *stream) receive() {
	defer close(f.done)
	b := make([]byte, 70000)
	for {
		n, err := f.in.Read(b)
		if err != nil {
			return
		}
		at := now()
		f.mu.Lock()
		for _, c := range b[min(n, 16):n] {
			if c != pattern {
				f.bad++
				break
			}
		}
		f.arrivals = append(f.arrivals, arrival{binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:])), at})
		f.mu.Unlock()
	}
}

// send sends n packets of size bytes, with a pause of at least gap after each. It
// makes no lost time up: a burst of 1000 would overflow the receiver's backlog
// (net.core.netdev_max_backlog) on a busy machine.
func (f *stream) send(n, size int, gap time.Duration) {
	f.t.Helper()
	b := make([]byte, max(size, 16))
	for i := range b {
		b[i] = pattern
	}
	for i := range n {
		binary.LittleEndian.PutUint64(b, f.next)
		f.sent = append(f.sent[:f.next], now())
		binary.LittleEndian.PutUint64(b[8:], uint64(f.sent[f.next]))
		f.next++
		if _, err := f.out.Write(b); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			f.t.Fatal(err)
		}
		if gap > 100*time.Microsecond || i%5 == 4 { // the shortest sleep takes that long
			time.Sleep(gap)
		}
	}
}

// came counts what has come in since the last drain.
func (f *stream) came() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.arrivals)
}

// drain waits until nothing has come in for a while, and returns what did since the
// last call.
func (f *stream) drain(quiet time.Duration) []arrival {
	pause := quiet + 2*testenv.Lateness()
	if inVM {
		pause = max(pause, 5*quiet)
	}
	for count := -1; count != f.came(); time.Sleep(pause) {
		count = f.came()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.arrivals
	f.arrivals = nil
	return a
}

// collect is drain where n packets are to come in: it waits for them, however busy
// the machine is, and a moment for what should not.
func (f *stream) collect(n int) []arrival {
	for end := time.Now().Add(slower(3 * time.Second)); f.came() < n && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return f.drain(20 * time.Millisecond)
}

// burst sends n small packets as fast as the lab carries them and returns which
// arrived.
func (f *stream) burst(n int) map[uint64]bool {
	f.t.Helper()
	f.send(n, 64, 10*time.Microsecond)
	got := map[uint64]bool{}
	for _, a := range f.drain(100 * time.Millisecond) {
		got[a.number] = true
	}
	return got
}

// within checks a count of successes against n draws of probability p: outside the
// bound it is by chance once in 10,000 runs, the two-sided 99.99 % quantile of the
// normal approximation being 3.89 (n*p*(1-p) is well above 100 in all tests).
func within(t testing.TB, what string, got, n int, p float64) {
	t.Helper()
	mean, dev := float64(n)*p, math.Sqrt(float64(n)*p*(1-p))
	if math.Abs(float64(got)-mean) > 3.89*dev+1 {
		t.Errorf("%s: %d of %d, want %.0f +- %.0f", what, got, n, mean, 3.89*dev)
	}
}

func newEngine(t testing.TB, cfg Config) *Engine {
	t.Helper()
	testenv.Root(t)
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// links lists the devices of a namespace, by name.
func (l *lab) links(t testing.TB, ns string) string {
	t.Helper()
	var names []string
	l.in(t, ns, func() error {
		all, err := netlink.LinkList()
		for _, link := range all {
			names = append(names, link.Attrs().Name)
		}
		return err
	})
	return strings.Join(names, " ")
}

func until(t testing.TB, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, limit)
		}
	}
}
