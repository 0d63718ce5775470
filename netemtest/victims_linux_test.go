package netemtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/netemtest"
	"netemd/qdisc"
)

// A victim is this test program once more, as go test would run it, which makes faults in
// namespaces of the test that starts it, and then ends in a way that runs no cleanup.
const (
	victimEnv = "NETEMTEST_VICTIM"
	placeEnv  = "NETEMTEST_PLACE"
)

// TestVictim is what a victim runs.
func TestVictim(t *testing.T) {
	way := os.Getenv(victimEnv)
	if way == "" {
		t.Skip("for the tests that start it")
	}
	lab := netemtest.Lab(t, shop) // with a process of its own
	f := netemtest.Inject(t, netemtest.Spec{Device: "v0", Namespace: os.Getenv(placeEnv), Direction: netemtest.Both, Netem: qdisc.Netem{Loss: 100}})
	netemtest.Partition(t, "api").AllowUnmet()
	netemtest.Toxic(t, "api", netemtest.ToxicSpec{Kind: "down"})
	fmt.Println("ready", lab.Name(), netemtest.WatcherPID())
	switch way {
	case "kill", "timeout":
		select {}
	case "exit":
		os.Exit(3)
	case "panic":
		panic("of the test's own")
	case "goroutine":
		go panic("of a goroutine")
		select {}
	case "failnow":
		t.Run("sub", func(t *testing.T) {
			netemtest.Inject(t, netemtest.Spec{Device: "v1", Namespace: os.Getenv(placeEnv) + "p", Rule: netemtest.Rule{Packets: "syn"}})
			t.FailNow()
		})
	case "pass":
		f.AllowUnmet()
	}
}

// place is a pair of namespaces for a victim: v0 in the first, v1 in the second, which is named
// as the first with a p behind.
type place struct{ near, far string }

func newPlace(t *testing.T) place {
	t.Helper()
	return newPlaceNamed(t, t.Name())
}

func newPlaceNamed(t *testing.T, name string) place {
	t.Helper()
	testenv.Root(t)
	p := place{near: fmt.Sprintf("nt-netemtest-%d-%s", os.Getpid(), strings.ToLower(strings.NewReplacer("/", "-", "Test", "").Replace(name)))}
	p.far = p.near + "p"
	for _, ns := range []string{p.near, p.far} {
		if err := namespaces.Create(ns); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := namespaces.Delete(ns); err != nil {
				t.Error(err)
			}
		})
		// IPv6 sends on its own when a device comes up: a fault would meet that.
		if err := namespaces.Do(t.Context(), ns, func() error {
			return os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0o644)
		}); err != nil {
			t.Fatal(err)
		}
	}
	err := namespaces.CreateVeth(
		namespaces.VethEnd{Namespace: p.near, Name: "v0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.78.0.1/24")}},
		namespaces.VethEnd{Namespace: p.far, Name: "v1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.78.0.2/24")}})
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); !p.open(t, time.Second); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pair does not come up")
		}
	}
	return p
}

// open reports whether the far side answers within limit: by refusing, since nobody listens.
func (p place) open(t *testing.T, limit time.Duration) bool {
	t.Helper()
	err := p.dial(t, limit, "10.78.0.2:9")
	if err == nil {
		t.Fatal("somebody listens")
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func (p place) dial(t *testing.T, limit time.Duration, address string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return namespaces.Do(ctx, p.near, func() error {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			err = c.Close()
		}
		return err
	})
}

// strangers are the devices that nobody of this test made.
func (p place) strangers(t *testing.T) (found []string) {
	t.Helper()
	for ns, device := range map[string]string{p.near: "v0", p.far: "v1"} {
		if err := namespaces.Do(t.Context(), ns, func() error {
			links, err := netlink.LinkList()
			for _, l := range links {
				if name := l.Attrs().Name; name != "lo" && name != device {
					found = append(found, fmt.Sprintf("device %s in %s", name, ns))
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// victim is one that runs.
type victim struct {
	cmd     *exec.Cmd
	output  *bufio.Reader
	lab     string
	watcher int
}

func start(t *testing.T, way string, p place, args ...string) *victim {
	t.Helper()
	v, said := tryStart(t, way, p, args...)
	if v == nil {
		t.Fatalf("the victim said:\n%s", said)
	}
	return v
}

// tryStart returns nil, and what it said, for a victim that ended before it had its fault.
func tryStart(t *testing.T, way string, p place, args ...string) (*victim, string) {
	t.Helper()
	v := &victim{cmd: exec.Command("/proc/self/exe", append([]string{"-test.run=^TestVictim$", "-test.v"}, args...)...)}
	v.cmd.Env = append(os.Environ(), victimEnv+"="+way, placeEnv+"="+p.near)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	v.cmd.Stdout, v.cmd.Stderr = w, w
	err = v.cmd.Start()
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = v.cmd.Process.Kill()
		_ = v.cmd.Wait()
	})
	v.output = bufio.NewReader(r)
	var before strings.Builder
	for {
		line, err := v.output.ReadString('\n')
		before.WriteString(line)
		if n, _ := fmt.Sscanf(line, "ready %s %d", &v.lab, &v.watcher); n == 2 {
			return v, ""
		}
		if err != nil {
			return nil, before.String()
		}
	}
}

// ended waits for the victim's end, and returns what it said. The end of what it says is that
// of all processes that have its output, which is what go test waits for.
func (v *victim) ended(t *testing.T) string {
	t.Helper()
	text := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(v.output)
		text <- string(b)
	}()
	select {
	case s := <-text:
		_ = v.cmd.Wait()
		return s
	case <-time.After(time.Minute):
		t.Fatal("the victim's output does not end")
		return ""
	}
}

// folders are those of the victim's agent.
func (v *victim) folders(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(fmt.Sprintf("/run/netemtest/%d-*", v.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// processes are those of the lab's services.
func (v *victim) processes(t *testing.T) (found []string) {
	t.Helper()
	for _, name := range v.namespaces(t) {
		pids, err := namespaces.PIDs(filepath.Base(name))
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, namespaces.ErrStale) {
			t.Fatal(err)
		}
		for _, pid := range pids {
			found = append(found, fmt.Sprintf("process %d in %s", pid, name))
		}
	}
	return found
}

// namespaces are those of its lab.
func (v *victim) namespaces(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/run/netns/netem-" + v.lab + "-*")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// gone waits until nothing is left of the victim.
func (v *victim) gone(t *testing.T, p place) {
	t.Helper()
	var left []string
	begun := time.Now()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		left = slices.Concat(v.folders(t), v.namespaces(t), v.processes(t), p.strangers(t))
		if alive(v.watcher) {
			left = append(left, fmt.Sprintf("watcher %d", v.watcher))
		}
		if len(left) == 0 {
			t.Logf("all was gone %v after its end", time.Since(begun).Round(time.Millisecond))
			return
		}
	}
	t.Errorf("left of the victim: %v", left)
}

// alive is false for a zombie, too, which nobody may reap in a container.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

// However a test program ends, its faults open at once and nothing stays.
func TestEndsWithoutCleanup(t *testing.T) {
	for _, tt := range []struct {
		way  string
		args []string
		says string
	}{
		{way: "kill"},
		{way: "timeout", args: []string{"-test.timeout=3s"}, says: "panic: test timed out"},
		{way: "exit"},
		{way: "panic", says: "panic: of the test's own"},
		{way: "goroutine", says: "panic: of a goroutine"},
		{way: "failnow", says: "--- FAIL: TestVictim/sub"},
		{way: "pass", says: "PASS"},
	} {
		if (tt.way == "exit" || tt.way == "panic" || tt.way == "pass") && os.Getenv("NETEMD_TEST_LONG") == "" {
			continue // each is like another one
		}
		t.Run(tt.way, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			v, said := tryStart(t, tt.way, p, tt.args...)
			for limit := 10 * time.Second; v == nil && tt.way == "timeout" && limit < time.Minute; limit *= 2 { // on a slow machine
				v, said = tryStart(t, tt.way, p, "-test.timeout="+limit.String())
			}
			if v == nil {
				t.Fatalf("the victim said:\n%s", said)
			}
			if tt.way == "kill" {
				if p.open(t, 200*time.Millisecond) {
					t.Error("the victim's fault is not in force")
				}
				if err := v.cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if said := v.ended(t); !strings.Contains(said, tt.says) {
				t.Errorf("it said %q, want %q", said, tt.says)
			}
			start := time.Now()
			if !p.open(t, 10*time.Second) {
				t.Error("the fault is still in force")
			}
			t.Logf("an answer %v after its end", time.Since(start).Round(time.Millisecond))
			v.gone(t, p)
		})
	}
}

// Where the watcher is killed, too, the next test that needs an agent clears what is left, and
// starts clean.
func TestNextClearsWhatWatchersDidNot(t *testing.T) {
	p := newPlace(t)
	v := start(t, "kill", p)
	for _, pid := range []int{v.watcher, v.cmd.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	v.ended(t)
	if !p.open(t, 10*time.Second) {
		t.Error("the fault is still in force")
	}
	if len(v.folders(t)) == 0 || len(v.namespaces(t)) == 0 {
		t.Fatal("who cleared?")
	}
	next := start(t, "pass", p)
	if left := slices.Concat(v.folders(t), v.namespaces(t), v.processes(t)); len(left) > 0 {
		t.Errorf("the next test began beside %v", left)
	}
	next.ended(t)
	next.gone(t, p)
}

// Also where another process is the agent nothing stays of a test program that is killed: its
// watcher takes the labs down, or the next test program does.
func TestKilledBesideARunningAgent(t *testing.T) {
	socket, _ := serveAgent(t)
	t.Setenv("NETEMD_SOCKET", socket)
	for _, tt := range []struct {
		name    string
		watcher bool
	}{{"watched", true}, {"unwatched", false}} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPlace(t)
			v := start(t, "kill", p)
			if v.watcher == 0 {
				t.Error("nobody watches over the labs")
			}
			killed := []int{v.cmd.Process.Pid}
			if !tt.watcher && v.watcher != 0 {
				killed = []int{v.watcher, v.cmd.Process.Pid}
			}
			for _, pid := range killed {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			v.ended(t)
			if !p.open(t, 10*time.Second) {
				t.Error("the fault is still in force")
			}
			if !tt.watcher {
				if len(v.folders(t)) == 0 || len(v.namespaces(t)) == 0 {
					t.Fatal("who cleared?")
				}
				next := start(t, "pass", p)
				if left := slices.Concat(v.folders(t), v.namespaces(t)); len(left) > 0 {
					t.Errorf("the next test began beside %v", left)
				}
				next.ended(t)
				next.gone(t, p)
			}
			v.gone(t, p)
		})
	}
}
