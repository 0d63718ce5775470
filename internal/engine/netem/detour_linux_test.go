package netem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

// fakeRoots stands for a qdisc.Conn on kernels without netem: the root of an ifb is a
// pfifo, and the impairment is only remembered.
type fakeRoots struct {
	*qdisc.Conn
	links *netlink.Handle
}

var (
	fakesMu sync.Mutex
	fakes   = map[string]qdisc.Netem{} // by the device's name
)

func fakeDial(ctx context.Context, ns *namespaces.Session) (roots, error) {
	return namespaces.Kept(ctx, ns, func() (*fakeRoots, error) {
		conn, err := qdisc.Dial(qdisc.Config{Namespace: ns.Name()})
		if err != nil {
			return nil, err
		}
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return &fakeRoots{conn, h}, nil
	})
}

func (f *fakeRoots) Close() error {
	f.links.Close()
	return f.Conn.Close()
}

func (f *fakeRoots) AddRoot(d qdisc.Device, n qdisc.Netem) error {
	attrs := netlink.QdiscAttrs{LinkIndex: d.Index, Parent: netlink.HANDLE_ROOT, Handle: qdisc.Handle}
	tbf := &netlink.Tbf{QdiscAttrs: attrs, Rate: 1e9, Limit: 1 << 26, Buffer: 1 << 26}
	if err := f.links.QdiscAdd(tbf); err != nil {
		return err
	}
	return f.ChangeRoot(d, qdisc.State{}, n)
}

func (f *fakeRoots) ChangeRoot(d qdisc.Device, _ qdisc.State, n qdisc.Netem) error {
	fakesMu.Lock()
	defer fakesMu.Unlock()
	fakes[d.Name] = n.Normalize()
	return nil
}

func (f *fakeRoots) Root(d qdisc.Device) (qdisc.State, error) {
	s, err := f.Conn.Root(d)
	fakesMu.Lock()
	defer fakesMu.Unlock()
	if n, ok := fakes[d.Name]; ok && s.Kind == "tbf" && s.Handle == qdisc.Handle {
		s.Kind, s.Netem = "netem", n
	}
	return s, err
}

// clsactOnly is the way of the engines that a test makes.
var clsactOnly bool

// bothWays runs a test with either thing at the hook.
func bothWays(t *testing.T, test func(*testing.T)) {
	testenv.Root(t)
	for _, way := range []string{"tcx", "clsact"} {
		t.Run(way, func(t *testing.T) {
			if way == "tcx" && !haveTCX() {
				t.Skip("this kernel has no tcx (Linux 6.6 or later does)")
			}
			clsactOnly = way == "clsact"
			defer func() { clsactOnly = false }()
			test(t)
		})
	}
}

// detourEngine is an engine for devices of others, with or without netem.
func detourEngine(t testing.TB, state string) *Engine {
	t.Helper()
	e := New(Config{State: state, Log: slog.New(slog.DiscardHandler)})
	e.clsactOnly = clsactOnly
	if os.Getenv("NETEMD_TEST_NETEM") == "" {
		e.dial = fakeDial
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return e
}

// foreign is b's place as one on a device of somebody else.
func (b *bench) foreign(hook target.Hook, flows ...target.Flow) target.Place {
	p := b.place
	p.Owned, p.Hook = false, hook
	p.Match.Include = flows
	return p
}

// tree is all that tc shows of these devices, or of all in b.near: qdiscs, classes,
// chains, filters.
func (b *bench) tree(t testing.TB, devices ...string) string {
	t.Helper()
	links, err := b.links.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var wanted strings.Builder
	for _, l := range links {
		name := l.Attrs().Name
		if len(devices) > 0 && !slices.Contains(devices, name) && l.Type() != ifbKind && l.Type() != macvlanKind {
			continue
		}
		fmt.Fprintf(&wanted, "qdisc show dev %[1]s\nclass show dev %[1]s\nfilter show dev %[1]s\n", name)
		for _, hook := range []target.Hook{target.Ingress, target.Egress} {
			fmt.Fprintf(&wanted, "filter show dev %[1]s %[2]s\nchain show dev %[1]s %[2]s\n", name, hook)
		}
	}
	cmd := exec.Command("tc", "-n", b.near, "-d", "-b", "-")
	cmd.Stdin = strings.NewReader(wanted.String())
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("tc: %v\n%s", err, text)
	}
	return string(text)
}

var udp = target.Flow{Protocol: 17}

func TestDetour(t *testing.T) { bothWays(t, testDetour) }

func testDetour(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			b := newBench(t)
			e := detourEngine(t, "/run/nt-"+b.near)
			before := b.tree(t)
			p := b.foreign(hook, udp)
			n := qdisc.Netem{Delay: 30 * ms}
			if err := e.Set(t.Context(), p, n, time.Time{}); err != nil {
				t.Fatal(err)
			}
			t.Log(b.tree(t))
			st, err := e.Read(t.Context(), p)
			if err != nil || len(n.Differences(st.Netem)) > 0 {
				t.Errorf("in force: %v, %v", st.Netem, err)
			}
			if got := len(b.send(t, 100, 0, nil)); got != 100 {
				t.Errorf("%d of 100 arrived", got)
			}
			st, err = e.Read(t.Context(), p)
			want := uint64(100)
			if hook == target.Ingress {
				want = 0 // they went the other way
			}
			if err != nil || st.Counters.Seen != want || st.Counters.Delayed != want {
				t.Errorf("counters: %+v, %v, want %d", st.Counters, err, want)
			}
			if err := e.Clear(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			e.drains.Wait()
			if after := b.tree(t); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
			if st, err := e.Read(t.Context(), p); err != nil || !st.Netem.IsZero() {
				t.Errorf("after the clear: %v, %v", st.Netem, err)
			}
		})
	}
}
