package netem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/target"
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

func fakeDial(c qdisc.Config) (roots, error) {
	conn, err := qdisc.Dial(c)
	if err != nil {
		return nil, err
	}
	h, err := handleAt(c.NetNS)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return &fakeRoots{conn, h}, nil
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

// detourEngine is an engine for devices of others, with or without netem.
func detourEngine(t testing.TB, state string) *Engine {
	t.Helper()
	e := New(Config{State: state})
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

// tree is all that tc shows of the namespace: qdiscs, classes, chains, filters, and the
// devices.
func (b *bench) tree(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	tc := func(args ...string) string {
		cmd := exec.Command("ip", append([]string{"netns", "exec", b.near, "tc", "-d"}, args...)...)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("tc %s: %v\n%s", args, err, text)
		}
		fmt.Fprintf(&out, "# tc %s\n%s", args, text)
		return string(text)
	}
	tc("qdisc", "show")
	links, err := b.links.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		name := l.Attrs().Name
		fmt.Fprintf(&out, "# %s %s %s\n", name, l.Type(), l.Attrs().Alias)
		tc("class", "show", "dev", name)
		tc("filter", "show", "dev", name)
		if q := tc("qdisc", "show", "dev", name); strings.Contains(q, "clsact") || strings.Contains(q, "ingress") {
			for _, hook := range []string{"ingress", "egress"} {
				if hook == "egress" && !strings.Contains(q, "clsact") {
					continue
				}
				tc("filter", "show", "dev", name, hook)
				tc("chain", "show", "dev", name, hook)
			}
		}
	}
	return out.String()
}

var udp = target.Flow{Protocol: 17}

func TestDetour(t *testing.T) {
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

var _ = fs.ErrExist
var _ = namespaces.Dir
