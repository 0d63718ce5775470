package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/access"
	"netemd/internal/child"
	"netemd/internal/config"
	"netemd/internal/engine/stream"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/qdisc"
)

// toxiproxy is a Toxiproxy that somebody else runs: that of a lab, without the lab.
type toxiproxy struct {
	tb        testing.TB
	api       string
	socket    string
	listening string // of its own proxy
	cmd       *exec.Cmd
}

var toxiproxies atomic.Int64

// ownLoopback is an address that no other test listens on.
func ownLoopback(tb testing.TB) string {
	tb.Helper()
	n := toxiproxies.Add(1)
	l, err := net.Listen("tcp", fmt.Sprintf("127.78.%d.%d:0", n/250, n%250+1))
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func startToxiproxy(tb testing.TB) *toxiproxy {
	tb.Helper()
	testenv.Root(tb)
	p := &toxiproxy{tb: tb, api: ownLoopback(tb), socket: filepath.Join(tb.TempDir(), "api"), listening: ownLoopback(tb)}
	p.cmd = exec.Command("/proc/self/exe", child.Args(stream.ChildName, "--api", p.socket, "--listen", p.listening, "--upstream", ownLoopback(tb), "--serve", p.api)...)
	p.cmd.Stderr = os.Stderr
	stdin, err := p.cmd.StdinPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = stdin.Close()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", p.api); err == nil {
			c.Close()
			break
		} else if time.Now().After(end) {
			tb.Fatal(err)
		}
	}
	p.call("POST", "/proxies", `{"name": "redis", "listen": "`+ownLoopback(tb)+`", "upstream": "127.0.0.1:9"}`)
	p.call("POST", "/proxies/redis/toxics", `{"name": "theirs", "type": "bandwidth", "attributes": {"rate": 100}}`)
	return p
}

func (p *toxiproxy) call(method, path, body string) string {
	p.tb.Helper()
	request, err := http.NewRequestWithContext(context.Background(), method, "http://"+p.api+path, strings.NewReader(body))
	if err != nil {
		p.tb.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		p.tb.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		p.tb.Fatalf("%s %s: %s: %s, %v", method, path, answer.Status, got, err)
	}
	return string(got)
}

// toxics are the names of a proxy's.
func (p *toxiproxy) toxics(proxy string) (names []string) {
	p.tb.Helper()
	var all []struct{ Name string }
	if err := json.Unmarshal([]byte(p.call("GET", "/proxies/"+proxy+"/toxics", "")), &all); err != nil {
		p.tb.Fatal(err)
	}
	for _, t := range all {
		names = append(names, t.Name)
	}
	return names
}

// state is all that is there.
func (p *toxiproxy) state() string { return p.call("GET", "/proxies", "") }

// again waits until the state is that.
func (p *toxiproxy) again(want string, limit time.Duration) {
	p.tb.Helper()
	for end := time.Now().Add(limit); p.state() != want; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			p.tb.Fatalf("not as it was after %v (-want +got): %s", limit, cmp.Diff(want, p.state()))
		}
	}
}

func (p *toxiproxy) spec(toxics ...fault.Toxic) fault.Spec {
	return fault.Spec{Target: "toxiproxy:redis@http://" + p.api, Toxics: toxics}
}

var slow = fault.Toxic{Kind: fault.Latency, Latency: 300 * time.Millisecond}

// A fault on the Toxiproxy of somebody else lives as every other.
func TestToxiproxyFaults(t *testing.T) {
	p := startToxiproxy(t)
	before := p.state()
	c := serve(t)
	f, err := c.Apply(t.Context(), p.spec(slow, fault.Toxic{Kind: fault.Slicer, Stream: fault.Upstream, AverageSize: 9, Toxicity: 50}))
	if err != nil {
		t.Fatal(err)
	}
	if f.Spec.Target != "toxiproxy:redis@"+p.api || f.Engine != fault.Stream || len(f.Placement) != 1 || f.Placement[0] != "proxy redis of the Toxiproxy at "+p.api ||
		!slices.ContainsFunc(f.Warnings, func(w string) bool { return strings.Contains(w, "unit = connection") }) {
		t.Errorf("%+v", f)
	}
	if got := p.toxics("redis"); len(got) != 3 || !slices.Contains(got, "theirs") {
		t.Errorf("toxics %q", got)
	}
	// A second one of the same owner stands beside it, the same is a conflict, and a packet fault has no place.
	second, err := c.Apply(t.Context(), p.spec(fault.Toxic{Kind: fault.Timeout}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Apply(t.Context(), p.spec(slow)); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("the same again: %v, want a conflict", err)
	}
	loss := fault.Spec{Target: p.spec().Target, Packet: &qdisc.Netem{Loss: 1}}
	if _, err := c.Apply(t.Context(), loss); !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "a proxy has connections alone") {
		t.Errorf("packets of a proxy: %v", err)
	}
	if _, err := c.Clear(t.Context(), fault.Selector{ID: second.ID}); err != nil {
		t.Fatal(err)
	}
	// Somebody else removes ours: seen within 1 s, and his own doing is nothing to us.
	p.call("DELETE", "/proxies/redis/toxics/theirs", "")
	for _, name := range p.toxics("redis") {
		if strings.Contains(name, "latency") {
			p.call("DELETE", "/proxies/redis/toxics/"+name, "")
		}
	}
	if f, took := becomes(t, c, f.ID, fault.Drifted, 20*time.Second); !strings.Contains(f.Reason, "other toxics") {
		t.Errorf("%s after %v", f.Reason, took)
	}
	if _, err := c.Clear(t.Context(), fault.Selector{Target: f.Spec.Target}); err != nil {
		t.Fatal(err)
	}
	p.call("POST", "/proxies/redis/toxics", `{"name": "theirs", "type": "bandwidth", "attributes": {"rate": 100}}`)
	p.again(before, 0)

	// One that ends by itself, with --repair, and a proxy that is made for it.
	own := fault.Spec{Target: "toxiproxy:" + ownLoopback(t) + "=127.0.0.1:9@" + p.api, Toxics: []fault.Toxic{slow}, TTL: 4 * time.Second, Repair: true}
	f, err = c.Apply(t.Context(), own)
	if err != nil {
		t.Fatal(err)
	}
	made := ""
	for name := range proxiesOf(t, p) {
		if strings.HasPrefix(name, "netemd-") {
			made = name
		}
	}
	p.call("DELETE", "/proxies/"+made, "")
	next(t, eventsOf(t, c, f.ID), "repaired")
	p.again(before, 20*time.Second)

	// Its Toxiproxy dies: the fault is lost, and can be cleared.
	f, err = c.Apply(t.Context(), p.spec(slow))
	if err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Process.Kill()
	if f, _ := becomes(t, c, f.ID, fault.Lost, 20*time.Second); !strings.Contains(f.Reason, "gone") {
		t.Error(f.Reason)
	}
	if _, err := c.Clear(t.Context(), fault.Selector{ID: f.ID}); err != nil {
		t.Error(err)
	}
}

func proxiesOf(tb testing.TB, p *toxiproxy) (all map[string]any) {
	tb.Helper()
	if err := json.Unmarshal([]byte(p.state()), &all); err != nil {
		tb.Fatal(err)
	}
	return all
}

// toxicEnv makes the test program an agent with a fault on a Toxiproxy, to be killed.
const toxicEnv = "NETEMD_TEST_AGENT_TOXIC"

func leaveToxic(what string) {
	dir, spec, _ := strings.Cut(what, "|")
	ctx := context.Background()
	a, err := New(ctx, Config{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		for one := range strings.SplitSeq(spec, "|") {
			text, kind, _ := strings.Cut(one, " ")
			toxic, bad := fault.ParseToxic(kind)
			_, err = a.leases.Apply(ctx, fault.Spec{Target: text, Toxics: []fault.Toxic{toxic}, Owner: "uid 0 (root)", OwnerKey: "uid:0"})
			err = errors.Join(err, bad)
		}
	}
	fmt.Printf("left %v\n", err)
	time.Sleep(time.Minute)
}

// After SIGKILL the keeper takes everything away at once; where that was killed too, a cleanup
// or the next start does.
func TestToxiproxyAfterKill(t *testing.T) {
	for _, by := range []string{"keeper", "cleanup", "start"} {
		t.Run(by, func(t *testing.T) {
			p := startToxiproxy(t)
			p.call("POST", "/proxies", `{"name": "pg", "listen": "`+ownLoopback(t)+`", "upstream": "127.0.0.1:9"}`)
			before := p.state()
			dir := filepath.Join(t.TempDir(), "s")
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), toxicEnv+"="+dir+"|toxiproxy:redis@"+p.api+" latency latency=1s|toxiproxy:pg@"+p.api+" down|toxiproxy:"+
				ownLoopback(t)+"=127.0.0.1:9@"+p.api+" timeout")
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			said := make([]byte, 64)
			n, err := io.ReadAtLeast(out, said, len("left <nil>"))
			if string(said[:n]) != "left <nil>\n" {
				t.Fatalf("the child said %q, %v", said[:n], err)
			}
			if p.state() == before {
				t.Fatal("there is nothing to take away")
			}
			if by != "keeper" {
				for _, pid := range childrenOf(t, cmd.Process.Pid) {
					_ = pid.Kill()
				}
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			cfg := Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
			switch by {
			case "keeper":
				p.again(before, 20*time.Second)
				fallthrough
			case "cleanup":
				removed, err := Cleanup(t.Context(), cfg)
				told := slices.ContainsFunc(removed, func(r string) bool {
					return strings.Contains(r, "proxy redis of the Toxiproxy at "+p.api) && strings.HasPrefix(r, "toxic ")
				})
				if err != nil || told != (by == "cleanup") {
					t.Errorf("%q, %v", removed, err)
				}
			case "start":
				a, err := New(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = a.Close(t.Context()) }()
			}
			p.again(before, 0)
		})
	}
}

// childrenOf are the processes that a process started.
func childrenOf(t *testing.T, pid int) (all []*os.Process) {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tasks {
		text, _ := os.ReadFile(file)
		for word := range bytes.FieldsSeq(text) {
			var n int
			if _, err := fmt.Sscan(string(word), &n); err == nil {
				if child, err := os.FindProcess(n); err == nil {
					all = append(all, child)
				}
			}
		}
	}
	if len(all) == 0 {
		t.Fatalf("process %d has no children", pid)
	}
	return all
}

// What the agent may be made to call, by whom.
func TestMayCall(t *testing.T) {
	allow := config.Toxiproxy{Allow: []string{"192.0.2.0/24", "::1", "/run/allowed"}}
	for _, tt := range []struct {
		owner, api string
		want       bool
	}{
		{"uid:0", "127.0.0.1:8474", true},
		{"uid:1000", "127.9.9.9:1", true},
		{"uid:1000", "localhost:1", true},
		{"uid:1000", "[::1]:1", true},
		{"uid:1000", "[::ffff:127.0.0.1]:1", true},
		{"uid:0", "198.51.100.1:80", false},
		{"uid:0", "169.254.169.254:80", false},
		{"uid:0", "192.0.2.9:80", true},
		{"uid:1000", "192.0.2.9:80", true},
		{"uid:0", "0.0.0.0:80", false},
		{"uid:0", "unix:/run/docker.sock", true},
		{"uid:1000", "unix:/run/docker.sock", false},
		{"uid:1000", "unix:/run/allowed", true},
		{`cn:"uid:0"`, "127.0.0.1:8474", false},
		{`cn:"ci"`, "[::1]:8474", true},
		{`cn:"ci"`, "192.0.2.9:80", true},
		{`cn:"ci"`, "unix:/run/docker.sock", false},
	} {
		a := &Agent{cfg: Config{Settings: config.Config{Toxiproxy: allow}}}
		err := a.mayCall(t.Context(), fault.Spec{OwnerKey: tt.owner}, target.Toxiproxy{API: tt.api, Name: "x"})
		if err == nil != tt.want || err != nil && !errors.Is(err, fault.ErrDenied) && !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%s, %s: %v; want %v", tt.owner, tt.api, err, tt.want)
		}
	}
}

// A rule names a proxy and its API.
func TestToxiproxyRules(t *testing.T) {
	p := startToxiproxy(t)
	policy, err := access.New([]access.Rule{{Users: []string{"1000"}, Verbs: []access.Verb{access.Apply}, Targets: []string{"toxiproxy:red*@127.*", "pg"}}})
	if err != nil {
		t.Fatal(err)
	}
	peer := access.Peer{UID: 1000, Owner: "uid 1000"}
	for text, want := range map[string]bool{
		p.spec().Target:                  true,
		"toxiproxy:pg@" + p.api:          false,
		"toxiproxy:redis@192.0.2.1:8474": false,
		"toxiproxy:redis@unix:/run/x":    false,
	} {
		if err := policy.Allow(peer, access.Apply, aimOfText(text)); err == nil != want {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}
