package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	_ "netemd/internal/testbed" // the children http-echo and grpc-echo
	"netemd/namespaces"
	"netemd/qdisc"
)

// asker is a user without rights who asks for labs.
var asker = Identity{UID: 65534, GID: 65534}

// logBuffer is a log that is read while it is written.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// eventually waits for what must come, on a slow machine too.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after 20 s: %s", what)
		}
	}
}

// uid is whom a process runs as.
func uid(t *testing.T, pid int) uint32 {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/task", pid), &st); err != nil {
		t.Fatal(err, info)
	}
	return st.Uid
}

// TestServices runs each kind but PostgreSQL for a user without rights, ends one, and
// has the next process adopt them.
func TestServices(t *testing.T) {
	d := testDefinition(t,
		ServiceDefinition{Name: "web", Kind: KindHTTPEcho, Port: 80},
		ServiceDefinition{Name: "rpc", Kind: KindGRPCEcho, Port: 81},
		ServiceDefinition{Name: "proxy", Kind: KindToxiproxy, Port: 15432, Upstream: "server:80"},
		ServiceDefinition{
			Name: "api", Command: []string{"sh", "-c", `echo "$NETEMD_LAB $NETEMD_NODE $(id -u) $(pwd) $A"; exec python3 -m http.server 88`},
			Directory: "/usr", Environment: []string{"A=b"}, Ready: Readiness{TCP: 88},
		},
		ServiceDefinition{Name: "short", Command: []string{"sh", "-c", "sleep 0.6; exit 7"}},
		ServiceDefinition{Name: "echo", Kind: KindEcho, Port: 7},
	)
	dir := openDir(t)
	m := newManager(t, dir)
	log := &logBuffer{}
	m.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
	info, err := m.Up(t.Context(), d, asker, nil)
	if err != nil {
		t.Fatal(err)
	}
	services := map[string]ServiceInfo{}
	for _, s := range info.Nodes[1].Services {
		services[s.Name] = s
		if s.Name == "short" || s.Name == "proxy" {
			continue // it may have ended, and this one is a stand-in that does not become its user
		}
		if got := uid(t, s.PID); got != asker.UID {
			t.Errorf("%s runs as %d, want %d", s.Name, got, asker.UID)
		}
	}
	text, err := os.ReadFile(services["api"].Log)
	if want := d.Name + " server 65534 /usr b\n"; err != nil || string(text) != want {
		t.Errorf("api: %q, %v, want %q", text, err, want)
	}
	web := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, at string) (net.Conn, error) {
		return dial(ctx, d.Namespace("client"), netip.MustParseAddrPort(at))
	}}}
	get := func(port int) string {
		resp, err := web.Get(fmt.Sprintf("http://%s:%d/x", serverAddress, port))
		if err != nil {
			t.Error(err)
			return ""
		}
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return string(text)
	}
	for _, port := range []int{80, 15432} {
		if text := get(port); !strings.Contains(text, `"path":"/x"`) {
			t.Errorf("port %d: %q", port, text)
		}
	}

	eventually(t, "the end of short", func() bool {
		info, err := m.Get(t.Context(), d.Name)
		last := info.Nodes[1].Services[4]
		return err == nil && !last.Ended.IsZero() && last.Status == "exit status 7"
	})
	contains(t, log.String(), "a service has ended by itself", "service=short", `status="exit status 7"`)
	if strings.Contains(log.String(), "service=web") {
		t.Errorf("a service that lives was missed: %s", log)
	}

	_ = m.Close() // as when the process ends, or it would see what the next one does
	next := newManager(t, dir)
	next.cfg.Log = m.cfg.Log
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	adopted, err := next.Get(t.Context(), d.Name)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range adopted.Nodes[1].Services {
		before := info.Nodes[1].Services[i]
		if same := s.PID == before.PID; same != (s.Name != "proxy") {
			t.Errorf("%s: process %d, before %d: only the proxy is replaced", s.Name, s.PID, before.PID)
		}
	}
	if s := adopted.Nodes[1].Services[4]; s.Status != "exit status 7" {
		t.Errorf("what had ended: %+v", s)
	}
	if text := get(15432); !strings.Contains(text, `"path":"/x"`) {
		t.Errorf("through the adopted proxy: %q", text)
	}
	if existed, err := next.Down(t.Context(), d.Name); !existed || err != nil {
		t.Errorf("down: %v, %v", existed, err)
	}
	if strings.Contains(log.String(), "service=api") {
		t.Errorf("what was stopped is told as ended by itself: %s", log)
	}
	nothingLeft(t, dir, d)
}

// TestOddServices has one service that cannot start beside one that can: nothing is left.
func TestOddServices(t *testing.T) {
	good := ServiceDefinition{Name: "good", Command: []string{"sleep", "1000"}}
	for want, bad := range map[string]ServiceDefinition{
		"service bad: ended before it was ready: exit status 2; its log: no config": {Command: []string{"sh", "-c", "echo no config; exit 2"}},
		"service bad: not ready after 200ms (last:":                                 {Command: []string{"sleep", "1000"}, Ready: Readiness{HTTP: "http://127.0.0.1:1/"}, ReadyTimeout: 200 * time.Millisecond},
	} {
		bad.Name = "bad"
		d := testDefinition(t, good, bad)
		dir := openDir(t)
		_, err := newManager(t, dir).Up(t.Context(), d, asker, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		nothingLeft(t, dir, d)
		if pids, err := namespaces.PIDs(d.Namespace("server")); err == nil {
			t.Errorf("processes %v", pids)
		}
	}
}

// TestIdentities has users asked for that may not be had.
func TestIdentities(t *testing.T) {
	for _, c := range []struct {
		by   Identity
		user string
		want string
		is   error
	}{
		{Identity{}, "", "", nil},
		{Identity{}, "nobody", "", nil},
		{asker, "", "", nil},
		{asker, "65534", "", nil},
		{Identity{}, "no-such-user", `nodes.server.services.x.user "no-such-user": want a user of this host`, qdisc.ErrInvalid},
		{Identity{}, "4242424", `nodes.server.services.x.user "4242424": want a user of this host`, qdisc.ErrInvalid},
		{asker, "root", "nodes.server.services.x.user: user root: permission denied: only root may", fs.ErrPermission},
		{asker, "0", "only root may have a command run as another user (uid 65534 asks)", fs.ErrPermission},
	} {
		d := Definition{Nodes: []Node{{Name: "server", Services: []ServiceDefinition{{Name: "x", Command: []string{"true"}, User: c.user}}}}}
		err := d.checkIdentities(c.by)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, c.is)) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

// TestKilledCommands kills the process that made a lab with commands: they go on, and end
// with the cleanup, those too that left their session and their namespace.
func TestKilledCommands(t *testing.T) {
	d := testDefinition(t,
		ServiceDefinition{Name: "far", Command: []string{"sh", "-c", `unshare -Urn sh -c 'trap "" TERM; while :; do sleep 0.05; done' & exec setsid sleep 1000`}},
		ServiceDefinition{Name: "late", Command: []string{"sleep", "1000"}, Ready: Readiness{Command: []string{"sleep", "0.1"}}},
	)
	dir := openDir(t)
	m := newManager(t, dir)
	for _, lines := range []int{7, 9} { // of what it tells: the first service begins, all is up
		killAndClean(t, m, d, lines, 300*time.Millisecond)
		left, err := filepath.Glob("/proc/[0-9]*/environ")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range left {
			if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("NETEMD_LAB="+d.Name+"\x00")) {
				t.Errorf("%s is left", path)
			}
		}
	}
}

// TestReplica has a standby that follows, and that can be adopted.
func TestReplica(t *testing.T) {
	d := testDefinition(t, postgresService)
	d.Nodes[0].Services = []ServiceDefinition{{Name: "the-replica", Kind: KindPostgres, Port: 5433, ReplicaOf: "postgres"}}
	dir := openDir(t)
	m := newManager(t, dir)
	began := time.Now()
	info, err := m.Up(t.Context(), d, Identity{}, func(step string) { t.Logf("%8.3f s %s", time.Since(began).Seconds(), step) })
	if err != nil {
		t.Fatal(err)
	}
	primary, err := m.Postgres(d.Name, netip.AddrPortFrom(serverAddress, 5432))
	if err != nil {
		t.Fatal(err)
	}
	standby, err := m.Postgres(d.Name, netip.MustParseAddrPort("10.78.0.1:5433"))
	if err != nil {
		t.Fatal(err)
	}
	write, err := connect(t.Context(), d.Namespace("client"), primary)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = write.Close(context.Background()) }()
	read, err := connect(t.Context(), d.Namespace("server"), standby)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close(context.Background()) }()
	var slots, recovery string
	if err := write.QueryRow(t.Context(), "select string_agg(slot_name || ' ' || active || ' ' || application_name, ',') from pg_replication_slots join pg_stat_replication on pid = active_pid").Scan(&slots); err != nil || slots != "the_replica true the-replica" {
		t.Errorf("slots %q, %v", slots, err)
	}
	if err := read.QueryRow(t.Context(), "select pg_is_in_recovery()::text").Scan(&recovery); err != nil || recovery != "true" {
		t.Errorf("in recovery: %q, %v", recovery, err)
	}
	if _, err := write.Exec(t.Context(), "create table t as select 42 as x"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the row at the standby", func() bool {
		var x int
		return read.QueryRow(t.Context(), "select x from t").Scan(&x) == nil && x == 42
	})
	next := newManager(t, dir)
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := next.Get(t.Context(), d.Name); err != nil || got.Nodes[0].Services[0].PID != info.Nodes[0].Services[0].PID {
		t.Errorf("adopted %+v, %v", got, err)
	}
	if _, err := next.Down(t.Context(), d.Name); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dir, d)
}

// TestServiceOrder has a service wait for what it needs.
func TestServiceOrder(t *testing.T) {
	d := pg()
	var mu sync.Mutex
	var got []string
	err := d.eachService(t.Context(), func(_ context.Context, s ServiceDefinition) error {
		time.Sleep(time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, s.Name)
		return nil
	})
	if err != nil || fmt.Sprint(got) != "[postgres proxy]" {
		t.Errorf("%v, %v", got, err)
	}
	no := errors.New("no")
	err = d.eachService(t.Context(), func(context.Context, ServiceDefinition) error { return no })
	if !errors.Is(err, no) || !strings.Contains(err.Error(), "service postgres: no") {
		t.Errorf("a failure: %v", err)
	}
}
