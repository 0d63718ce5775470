package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"netemd/internal/access"
	"netemd/internal/client"
	"netemd/internal/config"
	"netemd/internal/engine/ebpf"
	"netemd/internal/fault"
	"netemd/internal/journal"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

// An agent that was killed leaves in the journal what it had in force; a cleanup says and
// forgets it, and so does the next start.
func TestKilledAgent(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	for _, how := range []string{"cleanup", "start"} {
		dir := filepath.Join(t.TempDir(), "s")
		audit := filepath.Join(t.TempDir(), "audit.jsonl")
		killed := actor{Serve: dir}.start(t, start)
		c, err := client.Open(client.Endpoint{Socket: filepath.Join(dir, "netemd.sock")})
		if err != nil {
			t.Fatal(err)
		}
		f := apply(t, c, held(a))
		_ = c.Close()
		kill(killed)
		want := "fault " + f.ID + " of uid 0 (root) to v0@" + a + " udp port 5001, which was in force"
		cfg := Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Settings: settings(func(c *config.Config) { c.Audit.Path = audit })}
		if how == "cleanup" {
			removed, err := Cleanup(t.Context(), cfg)
			if err != nil || !slices.Contains(removed, want) {
				t.Errorf("removed %q, %v, want %q", removed, err, want)
			}
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the state folder stays: %v", err)
			}
		} else {
			log := &logged{}
			cfg.Log = log.logger()
			_, c := serveWith(t, cfg)
			if !says(log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, log)
			}
			none(t, c)
		}
		if got := auditLines(t, audit); len(got) != 1 || got[0].Verb != "removed" || got[0].Actor != "netemd" || !strings.Contains(got[0].Request, want) {
			t.Errorf("%s: written down: %+v", how, got)
		}
		if got := arrive(t, a, b, 5001, 20); got != 20 {
			t.Errorf("%s: %d of 20 arrive afterwards", how, got)
		}
	}
}

// leaveJournal leaves what a killed agent does in a namespace, with a journal that says
// so.
func leaveJournal(dir, namespace string) error {
	ctx := context.Background()
	t, err := target.Resolve(ctx, target.Selector{Namespace: namespace, Device: "v0"}, nil)
	if err != nil {
		return err
	}
	j, _, err := journal.Open(dir)
	if err != nil {
		return err
	}
	spec := fault.Spec{Selector: &target.Selector{Namespace: namespace, Device: "v0"}, Packet: &qdisc.Netem{Loss: 100}, Owner: "uid 0 (root)", TTL: time.Minute}
	if err := j.Intend(ctx, fault.Fault{ID: "bqk1", Spec: spec, Expires: time.Now().Add(time.Minute)}, []target.Place{t.To}); err != nil {
		return err
	}
	e, err := ebpf.New(ebpf.Config{Clsact: true}) // its filters outlive a process, as before Linux 6.6
	if err != nil {
		return err
	}
	return e.Set(ctx, t.To, qdisc.Netem{Loss: 100}, time.Now().Add(time.Minute))
}

// A namespace that lost its name while a process is in it is found by the journal.
func TestLeftInANamespaceWithoutAName(t *testing.T) {
	b := netns(t, "b")
	lost := strings.TrimSuffix(b, "b") + "lost"
	if err := namespaces.Create(lost); err != nil {
		t.Fatal(err)
	}
	pair(t, lost, b)
	dir := filepath.Join(t.TempDir(), "s")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	kill(actor{Leave: dir, Hold: lost}.start(t, start))
	inside := actor{Sleep: true}.start(t, func(cmd *exec.Cmd) error { return namespaces.Start(lost, cmd) })
	if err := namespaces.Delete(lost); err != nil {
		t.Fatal(err)
	}
	removed, err := Cleanup(t.Context(), Config{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Error(err)
	}
	has := func(text string) bool {
		return slices.ContainsFunc(removed, func(r string) bool { return strings.Contains(r, text) })
	}
	if !has("fault bqk1 of uid 0 (root)") || !has("which was being applied") || !has("on egress of v0 in namespace \""+lost) || !has("the clsact of v0 in namespace \""+lost) {
		t.Errorf("removed %q, want the fault at v0 with its clsact", removed)
	}
	entries, err := namespaces.List()
	if err != nil || slices.ContainsFunc(entries, func(e namespaces.Entry) bool { return strings.HasPrefix(e.Name, "netemd-sweep") }) {
		t.Errorf("the names that were lent are still there: %v, %v", entries, err)
	}
	kill(inside)
}

// A name that a sweep lent when it was killed goes with the next one; another process's stays
// as long as that lives.
func TestNamesOfAKilledSweep(t *testing.T) {
	testenv.Root(t)
	gone := actor{Sleep: true}.start(t, start)
	kill(gone)
	left := fmt.Sprintf("%s%d-4711", lent, gone.Process.Pid)
	used := fmt.Sprintf("%s%d-4712", lent, os.Getppid())
	for _, name := range []string{left, used} {
		if err := namespaces.Create(name); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = namespaces.Delete(used) }()
	if err := takeBack(); err != nil {
		t.Error(err)
	}
	entries, err := namespaces.List()
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e namespaces.Entry) bool { return e.Name == name })
	}
	if err != nil || has(left) || !has(used) {
		t.Errorf("%v, %v: want no %s, and %s", entries, err, left, used)
	}
}

// With Keep a graceful stop clears the kernel, and the next start puts the faults back
// under their ids for the time that they have left.
func TestKeep(t *testing.T) {
	testenv.Root(t)
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	dir := filepath.Join(t.TempDir(), "s")
	audit := filepath.Join(t.TempDir(), "audit.jsonl")
	keep := settings(func(c *config.Config) { c.Keep, c.Audit.Path = true, audit })
	var long, short fault.Fault
	t.Run("first life", func(t *testing.T) {
		_, c := serveWith(t, Config{StateDir: dir, Settings: keep})
		long = apply(t, c, held(a))
		short = apply(t, c, fault.Spec{Selector: ports(a, port(5002)), Packet: &qdisc.Netem{Loss: 100}, TTL: 2 * time.Second})
	})
	if got := arrive(t, a, b, 5001, 50); got != 50 {
		t.Errorf("between two lives %d of 50 arrive, want all", got)
	}
	time.Sleep(time.Until(short.Expires))
	t.Run("second life", func(t *testing.T) {
		_, c := serveWith(t, Config{StateDir: dir, Settings: settings(func(c *config.Config) { c.Audit.Path = audit })})
		fs, err := c.List(t.Context())
		if err != nil || len(fs) != 1 || fs[0].ID != long.ID {
			t.Fatalf("in force: %+v, %v, want fault %s", fs, err, long.ID)
		}
		if d := fs[0].Expires.Sub(long.Expires); d < -time.Second || d > time.Second || fs[0].Spec.Owner != long.Spec.Owner {
			t.Errorf("it ends at %v, want %v as before: %+v", fs[0].Expires, long.Expires, fs[0])
		}
		if got := arrive(t, a, b, 5001, 50); got != 0 {
			t.Errorf("%d of 50 arrive", got)
		}
		if _, err := c.Clear(t.Context(), fault.Selector{ID: long.ID}); err != nil {
			t.Errorf("clear by the id of before: %v", err)
		}
	})
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after a life that keeps nothing the state folder stays: %v", err)
	}
	var verbs []string
	for _, r := range auditLines(t, audit) {
		verbs = append(verbs, r.Verb)
	}
	for _, want := range []string{"kept", "restored", "expired"} {
		if !slices.Contains(verbs, want) {
			t.Errorf("written down: %q, want %q", verbs, want)
		}
	}
}

// A start that fails leaves the faults that were handed over to the next one.
func TestKeptOverAFailedStart(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	dir := filepath.Join(t.TempDir(), "s")
	var f fault.Fault
	t.Run("first life", func(t *testing.T) {
		_, c := serveWith(t, Config{StateDir: dir, Settings: settings(func(c *config.Config) { c.Keep = true })})
		f = apply(t, c, held(a))
	})
	other, err := net.Listen("unix", filepath.Join(dir, "netemd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(t.Context(), Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}); !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("a start while another program answers at the socket: %v", err)
	}
	_ = other.Close()
	_, c := serveWith(t, Config{StateDir: dir})
	if fs, err := c.List(t.Context()); err != nil || len(fs) != 1 || fs[0].ID != f.ID {
		t.Errorf("in force: %+v, %v, want fault %s", fs, err, f.ID)
	}
}

// A configuration that is of no use does not keep in the kernel what a killed agent left.
func TestStartThatFailsSweeps(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	for name, change := range map[string]func(*config.Config){
		"rules": func(c *config.Config) {
			c.Allow = []access.Rule{{Users: []string{"no such user"}, Verbs: []access.Verb{access.List}}}
		},
		"audit":   func(c *config.Config) { c.Audit.Path = "/proc/none/audit.jsonl" },
		"metrics": func(c *config.Config) { c.Metrics.Listen = "192.0.2.1:1" },
		"tcp": func(c *config.Config) {
			c.TCP = config.TCP{Listen: "127.0.0.1:0", Certificate: "/none", Key: "/none", ClientCA: "/none"}
		},
	} {
		dir := filepath.Join(t.TempDir(), "s")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		kill(actor{Leave: dir, Hold: a}.start(t, start))
		if !hasClsact(t, a) {
			t.Fatalf("%s: nothing was left", name)
		}
		if _, err := New(t.Context(), Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Settings: settings(change)}); err == nil {
			t.Fatalf("%s: it starts", name)
		}
		if hasClsact(t, a) {
			t.Errorf("%s: what was left is still there after a start that failed", name)
		}
	}
}

// hasClsact reports whether v0 of a namespace has what programs hang on.
func hasClsact(t *testing.T, ns string) (has bool) {
	t.Helper()
	err := namespaces.Do(t.Context(), ns, func() error {
		link, err := netlink.LinkByName("v0")
		if err != nil {
			return err
		}
		qdiscs, err := netlink.QdiscList(link)
		has = slices.ContainsFunc(qdiscs, func(q netlink.Qdisc) bool { return q.Type() == "clsact" })
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return has
}

// A stopping agent says that it does not serve before it is gone.
func TestHealth(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	testenv.Root(t)
	ready, stopping := make(chan bool, 1), make(chan bool, 1)
	a, err := New(t.Context(), Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Ready: func() { ready <- true }, Stopping: func() { stopping <- true }})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := a.health.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}); err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("before it serves: %v, %v", got, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx) }()
	<-ready
	c := grpc_health_v1.NewHealthClient(dial(t, a.cfg.Socket))
	if _, err := c.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{Service: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("a service that there is not: %v, want NotFound", err)
	}
	watch, err := c.Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []grpc_health_v1.HealthCheckResponse_ServingStatus{grpc_health_v1.HealthCheckResponse_SERVING, grpc_health_v1.HealthCheckResponse_NOT_SERVING} {
		got, err := watch.Recv()
		if err != nil || got.GetStatus() != want {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
		if i == 0 {
			if err := a.Alive(t.Context()); err != nil {
				t.Error(err)
			}
			stop()
		}
	}
	<-stopping
	if err := <-served; err != nil {
		t.Error(err)
	}
}
