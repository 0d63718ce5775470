package lab

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/child"
	"netemd/internal/lab/service"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

func TestMain(m *testing.M) {
	child.Register(proxyChild, standInProxy)
	child.Register("up", upAndStay)
	child.Run()
	os.Exit(m.Run())
}

// standInProxy forwards TCP, and its API takes connections and says nothing.
func standInProxy(args []string) int {
	signal.Ignore(syscall.SIGHUP)
	api, err := net.Listen("unix", args[1])
	if err != nil {
		return 3
	}
	go func() {
		for {
			if c, err := api.Accept(); err == nil {
				_ = c.Close()
			}
		}
	}()
	l, err := net.Listen("tcp", args[3])
	if err != nil {
		return 4
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return 5
		}
		go func() {
			defer func() { _ = c.Close() }()
			up, err := net.Dial("tcp", args[5])
			if err != nil {
				return
			}
			defer func() { _ = up.Close() }()
			go func() { _, _ = io.Copy(up, c) }()
			_, _ = io.Copy(c, up)
		}()
	}
}

var labCounter atomic.Int32

// testDefinition is a lab with a name of its own.
func testDefinition(t testing.TB, services ...ServiceDefinition) Definition {
	t.Helper()
	testenv.Root(t)
	return Definition{
		Name:    fmt.Sprintf("nt-lab-%d-%d", os.Getpid(), labCounter.Add(1)),
		Nodes:   []Node{{Name: "client"}, {Name: "server", Services: services}},
		Links:   []Link{{A: "client", B: "server", Subnet: netip.MustParsePrefix("10.78.0.0/24")}},
		Targets: []TargetDefinition{{Name: "db", Node: "server", Client: "client", Protocol: 6, Ports: []target.Ports{target.Port(5432)}}},
	}
}

var (
	serverAddress   = netip.MustParseAddr("10.78.0.2")
	postgresService = ServiceDefinition{Name: "postgres", Kind: KindPostgres, Port: 5432}
	proxyService    = ServiceDefinition{Name: "proxy", Kind: KindToxiproxy, Port: 15432, Upstream: "server:5432"}
)

// openDir is a state folder that PostgreSQL's user reaches, unlike t.TempDir.
func openDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "nt-lab-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// newManager returns a manager whose labs are gone when the test ends.
func newManager(t testing.TB, dir string) *Manager {
	t.Helper()
	m, err := New(Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cleaned(context.Background(), m); err != nil {
			t.Error(err)
		}
	})
	return m
}

// nothingLeft checks that no trace of the lab is there.
func nothingLeft(t testing.TB, dir string, d Definition) {
	t.Helper()
	entries, err := namespaces.List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name, "netem-"+d.Name+"-") {
			t.Errorf("namespace %+v is left", e)
		}
	}
	if files, err := os.ReadDir(filepath.Join(dir, "labs")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left in labs: %v, %v", files, err)
	}
	procs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		// A child of the test itself that makes the lab bears the folder too.
		if text, err := os.ReadFile(p); err == nil && bytes.Contains(text, []byte(dir+"/labs/")) {
			t.Errorf("%s is left: %q", p, text)
		}
	}
}

func ip(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func contains(t testing.TB, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestNetwork(t *testing.T) {
	d := testDefinition(t)
	dir := t.TempDir()
	var devices []target.Place
	m := newManager(t, dir)
	var mu sync.Mutex
	m.cfg.NewDevice = func(_ context.Context, p target.Place) error {
		mu.Lock()
		defer mu.Unlock()
		devices = append(devices, p)
		return nil
	}
	began := time.Now()
	info, err := m.Up(t.Context(), d, Identity{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up without services: %v", time.Since(began))

	client, server, wire := d.Namespace("client"), d.Namespace("server"), d.Namespace("wire")
	contains(t, ip(t, "-n", client, "addr"), "10.78.0.1/32", "eth0")
	contains(t, ip(t, "-n", client, "link", "show", "dev", "lo"), "lab="+d.Name+" node=client state="+m.cfg.StateDir)
	contains(t, ip(t, "-n", client, "route"), "10.78.0.0/24 dev eth0 scope link src 10.78.0.1 congctl cubic")
	contains(t, ip(t, "-n", server, "route"), "10.78.0.0/24 dev eth0 scope link src 10.78.0.2 congctl cubic")
	contains(t, ip(t, "-n", wire, "rule"), "from all iif client lookup 100", "from all iif server lookup 101")
	contains(t, ip(t, "-n", wire, "route", "show", "table", "100"), "default via 10.78.0.2 dev server onlink")
	contains(t, ip(t, "-n", wire, "route", "show", "table", "101"), "default via 10.78.0.1 dev client onlink")
	contains(t, ip(t, "-n", client, "neigh"), "10.78.0.2 dev eth0", "PERMANENT")
	contains(t, ip(t, "-n", wire, "neigh"), "10.78.0.1 dev client", "10.78.0.2 dev server")

	// Nothing talks unasked.
	time.Sleep(200 * time.Millisecond)
	for _, device := range []string{"client", "server"} {
		err := withHandle(t.Context(), wire, func(h *netlink.Handle) error {
			link, err := h.LinkByName(device)
			if err != nil {
				return err
			}
			if s := link.Attrs().Statistics; s.RxPackets != 0 || s.TxPackets != 0 {
				t.Errorf("%s: %d packets in, %d out", device, s.RxPackets, s.TxPackets)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}

	sysctls := map[string]map[string]string{}
	for _, n := range info.Nodes {
		sysctls[n.Name] = map[string]string{}
		for _, s := range n.Sysctls {
			sysctls[n.Name][s.Name] = s.Value
		}
	}
	for node, forward := range map[string]string{"client": "0", "server": "0", "wire": "1"} {
		want := map[string]string{
			"net.ipv4.ip_forward": forward, "net.ipv4.conf.all.rp_filter": "0", "net.ipv4.tcp_no_metrics_save": "1",
			"net.ipv6.conf.default.disable_ipv6": "1", "net.ipv4.tcp_syn_retries": "6", "net.ipv4.tcp_rmem": "4096\t131072\t6291456",
		}
		for name, value := range want {
			if got := sysctls[node][name]; got != value {
				t.Errorf("%s: %s is %q, want %q", node, name, got, value)
			}
		}
	}

	ts, err := m.Targets(t.Context())
	if err != nil || len(ts) != 1 {
		t.Fatal(ts, err)
	}
	for _, p := range []target.Place{ts[0].To, ts[0].From} {
		contains(t, ip(t, "-n", p.Namespace, "link", "show", "dev", p.Device), fmt.Sprintf("%d: %s@", p.Index, p.Device))
		n, err := namespaces.Open(p.Namespace)
		if err != nil {
			t.Fatal(err)
		}
		if cookie, err := n.Cookie(); err != nil || p.Cookie != cookie || cookie == 0 {
			t.Errorf("cookie %d, want %d, %v", p.Cookie, cookie, err)
		}
		_ = n.Close()
	}
	places := []target.Place{ts[0].From, ts[0].To}
	for i := range places {
		places[i].Match = target.Match{}
	}
	slices.SortFunc(devices, func(a, b target.Place) int { return strings.Compare(a.Device, b.Device) })
	if diff := cmp.Diff(places, devices, cmp.Comparer(func(a, b target.Place) bool { return a.Key() == b.Key() })); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	talk(t, client, server)

	again, err := m.Up(t.Context(), d, Identity{}, nil)
	if err != nil || !again.Up.Equal(info.Up) {
		t.Errorf("up again: %+v, %v", again, err)
	}
	other := d
	other.Targets = nil
	if _, err := m.Up(t.Context(), other, Identity{}, nil); !errors.Is(err, ErrConflict) {
		t.Errorf("up with another definition: %v", err)
	}
	if got, err := m.Get(t.Context(), d.Name); err != nil || got.Name != d.Name {
		t.Errorf("get: %+v, %v", got, err)
	}
	ip(t, "-n", wire, "link", "del", "server")
	if _, err := m.Up(t.Context(), d, Identity{}, nil); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "device server in "+wire) {
		t.Errorf("up of a lab without a wire's device: %v", err)
	}
	if err := namespaces.Delete(wire); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context(), d, Identity{}, nil); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "namespace "+wire+" is gone") {
		t.Errorf("up of a broken lab: %v", err)
	}
	for i, want := range []bool{true, false} {
		existed, err := m.Down(t.Context(), d.Name)
		if err != nil || existed != want {
			t.Errorf("down %d: %v, %v", i, existed, err)
		}
	}
	if _, err := m.Get(t.Context(), d.Name); !errors.Is(err, ErrUnknown) {
		t.Errorf("get after down: %v", err)
	}
	nothingLeft(t, dir, d)
}

// talk sends a line through the wire and checks the ends' congestion control.
func talk(t *testing.T, client, server string) {
	t.Helper()
	var l net.Listener
	err := namespaces.Do(t.Context(), server, func() (err error) {
		l, err = net.Listen("tcp", "10.78.0.2:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := dial(t.Context(), client, netip.MustParseAddrPort(l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for who, conn := range map[string]net.Conn{"client": c, "server": s} {
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			if got, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || strings.TrimRight(got, "\x00") != "cubic" {
				t.Errorf("%s: congestion control %q, %v", who, got, err)
			}
		})
	}
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(s).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

// TestSixAndDirect makes a lab of an IPv6 link without a wire.
func TestSixAndDirect(t *testing.T) {
	for _, direct := range []bool{false, true} {
		d := testDefinition(t)
		d.Links[0].Subnet = netip.MustParsePrefix("fd00:78::/64")
		d.Links[0].Direct = direct
		m := newManager(t, t.TempDir())
		if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
			t.Fatal(err)
		}
		var l net.Listener
		err := namespaces.Do(t.Context(), d.Namespace("server"), func() (err error) {
			l, err = net.Listen("tcp", "[fd00:78::2]:0")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		c, err := dial(t.Context(), d.Namespace("client"), netip.MustParseAddrPort(l.Addr().String()))
		if err != nil {
			t.Fatalf("direct %v: %v", direct, err)
		}
		_, _ = c.Close(), l.Close()
	}
}

func TestConflict(t *testing.T) {
	d := testDefinition(t)
	taken := d.Namespace("server")
	for kind, c := range map[string]struct {
		make func() error
		want string
	}{
		"foreign namespace": {func() error { return namespaces.Create(taken) }, "is there already: it is not netemd's"},
		"stale file":        {func() error { return os.WriteFile(filepath.Join(namespaces.Dir, taken), nil, 0) }, "stale file"},
	} {
		t.Run(kind, func(t *testing.T) {
			if err := c.make(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = namespaces.Delete(taken) }()
			dir := t.TempDir()
			m := newManager(t, dir)
			_, err := m.Up(t.Context(), d, Identity{}, nil)
			if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), taken) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("up: %v", err)
			}
			if err := cleaned(t.Context(), m); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(filepath.Join(namespaces.Dir, taken)); err != nil {
				t.Errorf("what was there: %v", err)
			}
			_ = namespaces.Delete(taken)
			nothingLeft(t, dir, d)
		})
	}
}

// cleaned removes all labs.
func cleaned(ctx context.Context, m *Manager) error {
	_, err := m.Cleanup(ctx)
	return err
}

// TestTwoAgents has two state folders and one name.
func TestTwoAgents(t *testing.T) {
	d := testDefinition(t)
	first, second := newManager(t, t.TempDir()), newManager(t, t.TempDir())
	if _, err := first.Up(t.Context(), d, Identity{}, nil); err != nil {
		t.Fatal(err)
	}
	_, err := second.Up(t.Context(), d, Identity{}, nil)
	if !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "belongs to the netemd with the state folder "+first.cfg.StateDir) {
		t.Errorf("the second's: %v", err)
	}
	if err := errors.Join(cleaned(t.Context(), second), second.Adopt(t.Context())); err != nil {
		t.Error(err)
	}
	talk(t, d.Namespace("client"), d.Namespace("server"))

	// Not even a record makes what bears another's mark the second's.
	r := &record{SchemaVersion: recordVersion, Definition: d}
	if r.BootID, err = bootID(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(second.dir(), 0o755), second.save(r)); err != nil {
		t.Fatal(err)
	}
	if err := cleaned(t.Context(), second); err != nil {
		t.Error(err)
	}
	talk(t, d.Namespace("client"), d.Namespace("server"))
}

// TestUndo fails and cancels at each step, with what it has started.
func TestUndo(t *testing.T) {
	dir := t.TempDir()
	m := newManager(t, dir)
	stop := errors.New("stop")
	for _, c := range []struct {
		service ServiceDefinition
		steps   []string
	}{
		{postgresService, []string{"namespaces", "link", "postgres: making", "postgres: starting"}},
		{proxyService, []string{"proxy: starting"}},
	} {
		for _, step := range c.steps {
			d := testDefinition(t, c.service)
			ctx, cancel := context.WithCancelCause(t.Context())
			_, err := m.Up(ctx, d, Identity{}, func(s string) {
				if strings.HasPrefix(s, step) {
					time.AfterFunc(5*time.Millisecond, func() { cancel(stop) })
					if !strings.HasPrefix(s, "postgres") {
						cancel(stop)
					}
				}
			})
			if !errors.Is(err, stop) {
				t.Errorf("cancelled at %q: %v, want the cause", step, err)
			}
			nothingLeft(t, dir, d)
		}
	}
	d := testDefinition(t)
	m.cfg.NewDevice = func(context.Context, target.Place) error { return stop }
	if _, err := m.Up(t.Context(), d, Identity{}, nil); !errors.Is(err, stop) {
		t.Errorf("failing device: %v", err)
	}
	nothingLeft(t, dir, d)
}

// TestOrphans loses the record: the marks in the namespaces are enough.
func TestOrphans(t *testing.T) {
	d := testDefinition(t)
	dir := t.TempDir()
	m := newManager(t, dir)
	if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
		t.Fatal(err)
	}
	sleep := exec.Command("sleep", "60")
	if err := namespaces.Start(d.Namespace("client"), sleep); err != nil {
		t.Fatal(err)
	}
	go func() { _ = sleep.Wait() }()
	if err := os.RemoveAll(m.dir()); err != nil {
		t.Fatal(err)
	}
	if err := newManager(t, dir).Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, dir, d)
	if p, err := service.Identify(sleep.Process.Pid); err == nil && p.Alive() {
		t.Error("a process that was in the namespace lives")
	}
	if err := cleaned(t.Context(), m); err != nil { // what this process knew is gone, too
		t.Error(err)
	}
}
