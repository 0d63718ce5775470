package lab

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"netemd/internal/child"
	"netemd/internal/target"
	"netemd/namespaces"
)

// crowd is campus with more nodes at its switch and services: a proxy, a server and a
// command of which a part leaves its session and its namespaces.
func crowd(t testing.TB) Definition {
	t.Helper()
	d := campus(t)
	for i := range 6 {
		name := fmt.Sprintf("n%d", i)
		d.Nodes = append(d.Nodes, Node{Name: name})
		d.Links = append(d.Links, Link{A: name, B: "lan", Direct: i%2 == 0})
	}
	d.Nodes[1].Services = []ServiceDefinition{{Name: "proxy", Kind: KindToxiproxy, Port: 15432, Upstream: "a:5432"}}
	d.Nodes[0].Services = []ServiceDefinition{{Name: "web", Kind: KindHTTPEcho, Port: 80}}
	d.Nodes[2].Services = []ServiceDefinition{{
		Name: "far", Command: []string{"sh", "-c", `unshare -Urn sleep 1000 & exec setsid sleep 1000`},
	}}
	d.Targets = append(d.Targets, TargetDefinition{Name: "proxied", Node: "b", Client: "a", Protocol: 6, Ports: []target.Ports{target.Port(5432)}, Proxy: "proxy"})
	return d
}

// TestKilledCrowd kills a process at random moments in the middle of making and removing a
// lab of many nodes, a bridge, base impairments and services, and cleans up without it; every
// other time the next one adopts what is left before that. Afterwards the namespaces, links,
// processes and files are those from before. In the long run "netemd cleanup" cleans up.
func TestKilledCrowd(t *testing.T) {
	kills := 4
	d := crowd(t)
	dir := openDir(t)
	m := newManager(t, dir)
	host := newMachine(t)
	clean := func() error { return cleaned(t.Context(), m) }
	if os.Getenv("NETEMD_TEST_LONG") == "1" {
		kills = 200
		clean = host.program(t, dir)
	}

	// How long one life takes tells how long to wait for the kill.
	began := time.Now()
	if _, err := newManagerWith(t, dir).Up(t.Context(), d, Identity{}, nil); err != nil {
		t.Fatal(err)
	}
	life := time.Since(began)
	t.Logf("up in %v", life)
	if err := clean(); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, dir, d)
	order, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]int{}
	var cleaning time.Duration
	for i := range kills {
		step := host.kill(t, time.Duration(random.Int64N(int64(life)*3/2)), "up", dir, string(order), "in turns")
		steps[strings.TrimRight(step, " 0123456789/")]++
		if i%2 == 1 {
			next := newManagerWith(t, dir)
			err = errors.Join(next.Adopt(t.Context()), next.Close())
		}
		began := time.Now()
		if err := errors.Join(err, clean()); err != nil {
			t.Errorf("killed after %q: %v", step, err)
		}
		cleaning = max(cleaning, time.Since(began))
		nothingLeft(t, dir, d)
		host.nothingLeft(t, dir, d)
		if t.Failed() {
			t.Fatalf("kill %d, after %q", i, step)
		}
	}
	t.Logf("one life takes %v; killed %d times, after the steps %v; a cleanup took %v at most", life, kills, steps, cleaning)
}

// machine is a namespace that stands for the host's own: what makes and cleans labs runs in it,
// so that a link which was left there is not mistaken for somebody else's.
type machine string

func newMachine(t *testing.T) machine {
	t.Helper()
	h := machine(fmt.Sprintf("nt-lab-%d-host", os.Getpid()))
	if err := namespaces.Create(string(h)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = namespaces.Delete(string(h)) })
	return h
}

// program builds netemd and returns what runs its cleanup for a state folder.
func (h machine) program(t *testing.T, dir string) func() error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netemd")
	if out, err := exec.Command("go", "build", "-o", path, "netemd/cmd/netemd").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return func() error {
		cmd := exec.Command(path, "cleanup", "--state-dir", dir)
		var said bytes.Buffer
		cmd.Stdout, cmd.Stderr = &said, &said
		if err := namespaces.Start(string(h), cmd); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("netemd cleanup: %w: %s", err, said.Bytes())
		}
		return nil
	}
}

// kill starts a child of this program, kills it so long after its first line, and returns the
// last line.
func (h machine) kill(t *testing.T, after time.Duration, name string, args ...string) (last string) {
	t.Helper()
	p, err := child.Start(string(h), child.Options{Stderr: os.Stderr}, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(p.Stdout)
	if !scanner.Scan() { // the first step
		t.Fatalf("ended early: %v", p.Wait())
	}
	lines := make(chan string, 1)
	go func() {
		last := scanner.Text()
		for scanner.Scan() {
			last = scanner.Text()
		}
		lines <- last
	}()
	time.Sleep(after)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	return <-lines
}

// nothingLeft checks what the lab's names do not tell: the host's links, mounts, and
// processes that left the lab's namespaces.
func (h machine) nothingLeft(t *testing.T, dir string, d Definition) {
	t.Helper()
	if links := strings.TrimSpace(ip(t, "-n", string(h), "-o", "link", "show")); !strings.HasPrefix(links, "1: lo:") || strings.Contains(links, "\n") {
		t.Errorf("links are left:\n%s", links)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || bytes.Contains(mounts, []byte("netem-"+d.Name)) || bytes.Contains(mounts, []byte(dir)) {
		t.Errorf("mounts are left: %v", err)
	}
	processes, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range processes {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("NETEMD_LAB="+d.Name+"\x00")) {
			t.Errorf("%s is left", path)
		}
	}
}

// newManagerWith is newManager with a stand-in for an engine.
func newManagerWith(t testing.TB, dir string) *Manager {
	m := newManager(t, dir)
	m.cfg.Engine = &impairer{}
	return m
}

// TestAdoptedCrowd kills who made a lab; the next finds it whole, and what was damaged
// meanwhile is taken down.
func TestAdoptedCrowd(t *testing.T) {
	d := crowd(t)
	dir := openDir(t)
	up := func() {
		t.Helper()
		order, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		p, err := child.Start("", child.Options{Stderr: os.Stderr}, "up", dir, string(order))
		if err != nil {
			t.Fatal(err)
		}
		scanner := bufio.NewScanner(p.Stdout)
		for scanner.Scan() && scanner.Text() != "up" {
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait()
	}
	up()
	next := newManagerWith(t, dir)
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if found, err := next.Diff(t.Context(), d); err != nil || len(found) > 0 {
		t.Errorf("the adopted lab differs: %v, %v", found, err)
	}
	if ts, err := next.Targets(t.Context()); err != nil || len(ts) != len(d.Targets) {
		t.Errorf("targets %v, %v", ts, err)
	}
	if err := cleaned(t.Context(), next); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dir, d)

	up()
	if err := namespaces.Delete(d.Namespace("wire3-base")); err != nil {
		t.Fatal(err)
	}
	if err := newManagerWith(t, dir).Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, dir, d)
}
