package lab

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/testenv"
	"netemd/namespaces"
)

// benchNodes is how many nodes the labs of the benchmarks have; NETEMD_BENCH_NODES is another
// number.
const benchNodes = 1000

// hubAndSpokes is a router with a veth pair to each of the other nodes, which are what one
// would make by hand for many clients of one server.
func hubAndSpokes(b testing.TB, nodes int) Definition {
	b.Helper()
	testenv.Root(b)
	d := Definition{
		Name:  fmt.Sprintf("nt-lab-%d-%d", os.Getpid(), labCounter.Add(1)),
		Nodes: []Node{{Name: "hub", Forward: true}},
	}
	for i := range nodes - 1 {
		name := fmt.Sprintf("n%d", i)
		d.Nodes = append(d.Nodes, Node{Name: name})
		d.Links = append(d.Links, Link{A: name, B: "hub", Direct: true})
	}
	return d
}

func nodesOfBench(b *testing.B) int {
	b.Helper()
	if n, err := strconv.Atoi(os.Getenv("NETEMD_BENCH_NODES")); err == nil {
		return n
	}
	return benchNodes
}

// BenchmarkLab makes a lab and takes it away, by the manager, by the same rtnetlink calls one
// after the other in one process, and by a shell that calls ip. With -benchtime 1x each is
// one run; up and down are reported apart, as are up's processor time and, as gone-s, the
// time until everything has gone from the kernel.
//
//	NETEMD_TEST_ROOT=1 go test -run '^$' -bench Lab -benchtime 1x ./internal/lab
func BenchmarkLab(b *testing.B) {
	nodes := nodesOfBench(b)
	for _, way := range []struct {
		name string
		up   func(testing.TB, *layout) func()
	}{{"manager", managed}, {"netlink", byNetlink}, {"ip", byIP}} {
		b.Run(fmt.Sprintf("%s/nodes=%d", way.name, nodes), func(b *testing.B) {
			var up, down, gone, cpu time.Duration
			for range b.N {
				l, err := hubAndSpokes(b, nodes).layout()
				if err != nil {
					b.Fatal(err)
				}
				began, spent := time.Now(), processorTime(b)
				takeDown := way.up(b, l)
				up += time.Since(began)
				cpu += processorTime(b) - spent
				wait := watch(b, l)
				began = time.Now()
				takeDown()
				down += time.Since(began)
				wait()
				gone += time.Since(began)
			}
			b.ReportMetric(up.Seconds()/float64(b.N), "up-s")
			b.ReportMetric(cpu.Seconds()/float64(b.N), "up-cpu-s")
			b.ReportMetric(down.Seconds()/float64(b.N), "down-s")
			b.ReportMetric(gone.Seconds()/float64(b.N), "gone-s")
		})
	}
}

// processorTime is what this process and its children that ended have taken, in the kernel
// too: on a busy machine it says more than the time that passed. What the kernel does in
// threads of its own is not in it.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var all time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var used unix.Rusage
		if err := unix.Getrusage(who, &used); err != nil {
			b.Fatal(err)
		}
		all += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	return all
}

// watch ties some namespaces of a lab to one beside it, by a veth pair each, and returns what
// waits until the kernel has taken the other ends away, which it does in the background.
func watch(b *testing.B, l *layout) (wait func()) {
	b.Helper()
	name := fmt.Sprintf("nt-lab-watch-%d", os.Getpid())
	if err := namespaces.Create(name); err != nil {
		b.Fatal(err)
	}
	for i, at := range []int{0, len(l.spots) / 2, len(l.spots) - 1} {
		end := namespaces.VethEnd{Name: fmt.Sprintf("w%d", i), Namespace: name}
		if err := namespaces.CreateVeth(end, namespaces.VethEnd{Name: "watched", Namespace: l.definition.Namespace(l.spots[at].name)}); err != nil {
			b.Fatal(err)
		}
	}
	return func() {
		left := 3
		deadline := time.Now().Add(5 * time.Minute)
		for left > 0 && time.Now().Before(deadline) {
			err := withHandle(b.Context(), name, func(h *netlink.Handle) error {
				links, err := h.LinkList()
				left = 0
				for _, link := range links {
					if link.Type() == "veth" {
						left++
					}
				}
				return err
			})
			if err != nil {
				b.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if err := namespaces.Delete(name); err != nil || left > 0 {
			b.Fatalf("%d namespaces are still there, %v", left, err)
		}
	}
}

func managed(b testing.TB, l *layout) func() {
	m, err := New(Config{StateDir: b.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := m.Up(b.Context(), l.definition, Identity{}, nil); err != nil {
		b.Fatal(err)
	}
	return func() {
		if _, err := m.Down(b.Context(), l.definition.Name); err != nil {
			b.Fatal(err)
		}
	}
}

// byNetlink makes the namespaces and calls the kernel for what is in them, as plainly as one
// can: one connection for each namespace, one call after the other, nothing read back,
// nothing written down, no sysctl.
func byNetlink(b testing.TB, l *layout) func() {
	ns := func(s *spot) string { return l.definition.Namespace(s.name) }
	must := func(err error) {
		if err != nil {
			b.Helper()
			b.Fatal(err)
		}
	}
	for _, s := range l.spots {
		must(namespaces.Create(ns(s)))
	}
	h, err := netlink.NewHandle()
	must(err)
	defer h.Close()
	for _, d := range l.pairs() {
		must(l.lay(h, d))
	}
	m, err := New(Config{StateDir: b.TempDir()})
	must(err)
	for _, s := range l.spots {
		must(namespaces.Do(b.Context(), ns(s), func() error { return m.setUp(l, s) }))
	}
	return func() {
		for _, s := range l.spots {
			must(namespaces.Delete(ns(s)))
		}
	}
}

// byIP is what one writes first: a loop in a shell.
func byIP(b testing.TB, l *layout) func() {
	ns := func(s *spot) string { return l.definition.Namespace(s.name) }
	var up, down strings.Builder
	for _, s := range l.spots {
		fmt.Fprintf(&up, "ip netns add %s\n", ns(s))
		fmt.Fprintf(&down, "ip netns del %s\n", ns(s))
	}
	for _, d := range l.pairs() {
		p := d.peer
		fmt.Fprintf(&up, "ip link add %s address %s netns %s type veth peer name %s address %s netns %s\n", d.name, d.mac, ns(d.spot), p.name, p.mac, ns(p.spot))
	}
	for _, s := range l.spots {
		for _, d := range s.devices {
			for _, a := range d.addresses {
				fmt.Fprintf(&up, "ip -n %s addr add %s dev %s noprefixroute\n", ns(s), host(a), d.name)
			}
			fmt.Fprintf(&up, "ip -n %s link set %s up\n", ns(s), d.name)
			for _, n := range d.neighbours {
				fmt.Fprintf(&up, "ip -n %s neigh replace %s lladdr %s dev %s nud permanent\n", ns(s), n.address, n.mac, d.name)
			}
		}
		for _, r := range s.routes {
			via := "scope link"
			if r.via.IsValid() {
				via = "via " + r.via.String()
			}
			fmt.Fprintf(&up, "ip -n %s route replace %s %s dev %s src %s congctl %s\n", ns(s), r.to, via, r.device.name, r.source, congestionControl)
		}
	}
	b.Cleanup(func() { // when the shell failed
		for _, s := range l.spots {
			_ = namespaces.Delete(ns(s))
		}
	})
	run := func(name, script string) {
		path := filepath.Join(b.TempDir(), name)
		if err := os.WriteFile(path, []byte("set -e\n"+script), 0o600); err != nil {
			b.Fatal(err)
		}
		if out, err := exec.Command("sh", path).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	run("up", up.String())
	return func() { run("down", down.String()) }
}
