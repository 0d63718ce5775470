package agent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/client"
	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/journal"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// long says that the run may take minutes.
func long() bool { return os.Getenv("NETEMD_TEST_LONG") != "" }

// footprint is what an agent in this process and a device of a namespace amount to.
type footprint struct {
	goroutines, descriptors int
	device                  string
}

func footprintOf(t testing.TB, ns string) (f footprint) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	f.goroutines, f.descriptors = runtime.NumGoroutine(), len(fds)
	err = namespaces.Do(t.Context(), ns, func() error {
		link, err := netlink.LinkByName("v0")
		if err != nil {
			return err
		}
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		qdiscs, err := netlink.QdiscList(link)
		f.device = fmt.Sprintf("%d links, qdiscs %v, alias %q", len(links), qdiscs, link.Attrs().Alias)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// same waits until no more is there than before: what was closed last needs a moment.
func (f footprint) same(t testing.TB, ns string) {
	t.Helper()
	var now footprint
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		runtime.GC()
		if now = footprintOf(t, ns); now.goroutines <= f.goroutines && now.descriptors <= f.descriptors && now.device == f.device {
			return
		}
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("before %+v, after %+v\n%s", f, now, stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// journalSize is bounded however much was done.
func journalSize(t testing.TB, a *Agent) {
	t.Helper()
	if st, err := os.Stat(filepath.Join(a.cfg.StateDir, journal.Name)); err != nil || st.Size() > 1<<20 {
		t.Errorf("the journal: %d bytes, %v", st.Size(), err)
	}
}

// Cycles on a real device leave nothing, neither in the agent nor in the kernel.
func TestCyclesOfTheKernel(t *testing.T) {
	x, y := netns(t, "x"), netns(t, "y")
	pair(t, x, y)
	a, c := serveWith(t, Config{})
	cycle := func(i int) {
		n := []qdisc.Netem{{Loss: 5}, {Delay: time.Millisecond}, {Duplicate: 1}}[i%3]
		f := apply(t, c, fault.Spec{Selector: ports(x, target.Port(uint16(5000+i%4))), Packet: &n})
		if cleared, err := c.Clear(t.Context(), fault.Selector{ID: f.ID}); err != nil || len(cleared) != 1 {
			t.Fatalf("cycle %d: %v, %v", i, cleared, err)
		}
	}
	clean := footprintOf(t, x).device
	for i := range 12 { // what is opened once
		cycle(i)
	}
	var before footprint
	eventually(t, "what a clear leaves to the background is gone", func() bool {
		before = footprintOf(t, x)
		return before.device == clean
	})
	cycles := 300
	if long() {
		cycles = 10_000
	}
	for i := range cycles {
		cycle(i)
	}
	before.same(t, x)
	journalSize(t, a)
}

// path is how one port is reached through the device.
type path struct{ out, in *net.UDPConn }

func pathTo(t testing.TB, a, b string, port uint16) (p path) {
	t.Helper()
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("10.78.0.2"), port))
	err := namespaces.Do(t.Context(), b, func() (err error) {
		p.in, err = net.ListenUDP("udp", to)
		return err
	})
	if err == nil {
		err = namespaces.Do(t.Context(), a, func() (err error) {
			p.out, err = net.DialUDP("udp", nil, to)
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.in.Close(), p.out.Close() })
	// A packet that waits for the neighbour's address passes the fault that is there then.
	if _, err = p.out.Write([]byte("first")); err == nil {
		_ = p.in.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err = p.in.Read(make([]byte, 64))
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const burst = 5

func (p path) send(what string) error {
	for range burst {
		if _, err := p.out.Write([]byte(what)); err != nil {
			return err
		}
	}
	return nil
}

// arrived reads n packets, and fails for one that is not what was sent.
func (p path) arrived(what string, n uint64) error {
	buf := make([]byte, 64)
	for i := range n {
		_ = p.in.SetReadDeadline(time.Now().Add(10 * time.Second))
		k, err := p.in.Read(buf)
		if err != nil {
			return fmt.Errorf("%d of %d packets came: %w", i, n, err)
		}
		if got := string(buf[:k]); got != what {
			return fmt.Errorf("%q came instead of %q: it was to be lost, or belongs to another client", got, what)
		}
	}
	return nil
}

// patientDial connects to an agent that has much to do.
func patientDial(t testing.TB, socket string) *client.Client {
	for end := time.Now().Add(5 * time.Minute); ; {
		c, err := client.Open(client.Endpoint{Socket: socket})
		if err == nil {
			return c
		}
		if time.Now().After(end) {
			t.Fatal(err) // it ends a client's goroutine, too
		}
	}
}

// Many clients, each with a connection of its own, want flows of one device that overlap.
// Each waits until it has its flow alone, loses all packets of it, changes that to none,
// and sees just that, by packets of its own.
func TestManyClientsOfTheKernel(t *testing.T) {
	const clients, portCount = 200, 8
	rounds := 1
	if long() {
		rounds = 10
	}
	x, y := netns(t, "x"), netns(t, "y")
	pair(t, x, y)
	a, c := serveWith(t, Config{Settings: settings(func(s *config.Config) {
		s.Limits.Waiting, s.Limits.FaultsPerOwner = 4*clients, clients // one owner may have a quarter of those that wait
	})})
	var paths [portCount]path
	for i := range paths {
		paths[i] = pathTo(t, x, y, uint16(7000+i))
	}
	apply(t, c, fault.Spec{Selector: ports(x, target.Port(9)), Packet: &qdisc.Netem{Loss: 1}})
	if _, err := c.Clear(t.Context(), fault.Selector{All: true}); err != nil {
		t.Fatal(err)
	}
	before := footprintOf(t, x)
	var waited, refused atomic.Int64
	var done sync.WaitGroup
	for id := range clients {
		c := patientDial(t, a.cfg.Socket)
		done.Go(func() {
			defer func() { _ = c.Close() }()
			r := rand.New(rand.NewPCG(2, uint64(id)))
			for round := range rounds {
				if t.Failed() {
					return // what another client left unread would be said to be ours
				}
				first := r.IntN(portCount)
				last := min(first+r.IntN(3), portCount-1)
				spec := fault.Spec{
					Selector: ports(x, target.Ports{First: uint16(7000 + first), Last: uint16(7000 + last)}), Engine: fault.EBPF,
					Packet: &qdisc.Netem{Loss: 100}, TTL: 10 * time.Minute, Wait: 5 * time.Minute, RequestID: fmt.Sprintf("%d.%d", id, round),
				}
				if r.IntN(10) == 0 {
					spec.Wait = 0
				}
				h, err := c.Hold(t.Context(), spec, func(e fault.Event, _ string) {
					if e.Kind == "waiting" {
						waited.Add(1)
					}
				})
				if errors.Is(err, fault.ErrConflict) && spec.Wait == 0 {
					refused.Add(1)
					continue
				}
				if err == nil {
					err = alone(t.Context(), c, h, paths[first+r.IntN(last-first+1)], fmt.Sprintf("%d.%d", id, round))
				}
				if err == nil {
					switch r.IntN(3) {
					case 0:
						_, err = h.Release(t.Context())
					case 1:
						_, err = c.Clear(t.Context(), fault.Selector{ID: h.Fault().ID})
					default: // it goes with the connection
						_ = c.Close()
						c = patientDial(t, a.cfg.Socket)
					}
				}
				if err != nil {
					t.Errorf("client %d, round %d, ports %d to %d: %v", id, round, first, last, err)
					return
				}
			}
		})
	}
	done.Wait()
	if waited.Load() < clients/2 {
		t.Errorf("%d waited, %d were refused: too few for a test", waited.Load(), refused.Load())
	}
	none(t, c)
	before.same(t, x)
	journalSize(t, a)
}

// hardly keeps the loss set, so that nobody else may set it, and loses one packet of 10^8.
const hardly qdisc.Percent = 1e-6

// alone uses a flow that nobody else has.
func alone(ctx context.Context, c *client.Client, h *client.Holding, p path, name string) error {
	if err := p.send("lost " + name); err != nil {
		return err
	}
	f, err := seenAll(ctx, c, h)
	if err != nil {
		return err
	}
	opened := f.Counters.Opened // while the agent had not got the CPU
	if f.Counters.Lost+opened != burst {
		return fmt.Errorf("counted %+v of %d packets that were to be lost", f.Counters, burst)
	}
	loss := hardly
	if _, err := c.Change(ctx, f.ID, qdisc.Patch{Loss: &loss}); err != nil {
		return err
	}
	if err := h.Renew(); err != nil {
		return err
	}
	if err := p.send(name); err != nil {
		return err
	}
	if err := errors.Join(p.arrived("lost "+name, opened), p.arrived(name, burst)); err != nil {
		return err
	}
	f, err = seenAll(ctx, c, h)
	if err == nil && (f.State != fault.Active || f.Spec.Packet.Loss != hardly || f.Counters.Lost > 0) {
		err = fmt.Errorf("%s %v, %+v, warnings: %s", f.State, f.Spec.Packet, f.Counters, strings.Join(f.Warnings, "; "))
	}
	return err
}

// seenAll waits until the fault has seen what was sent.
func seenAll(ctx context.Context, c *client.Client, h *client.Holding) (f fault.Fault, err error) {
	for end := time.Now().Add(10 * time.Second); err == nil && time.Now().Before(end); {
		if f, err = c.Get(ctx, h.Fault().ID); err == nil && f.Counters.Seen == burst {
			return f, nil
		}
	}
	return f, errors.Join(err, fmt.Errorf("counted %+v of %d packets", f.Counters, burst))
}
