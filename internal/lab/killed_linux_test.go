package lab

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"netemd/internal/child"
	"netemd/internal/target"
	"netemd/namespaces"
)

// crowd is campus with more nodes at its switch and a service.
func crowd(t testing.TB) Definition {
	t.Helper()
	d := campus(t)
	for i := range 6 {
		name := fmt.Sprintf("n%d", i)
		d.Nodes = append(d.Nodes, Node{Name: name})
		d.Links = append(d.Links, Link{A: name, B: "lan", Direct: i%2 == 0})
	}
	d.Nodes[1].Services = []ServiceDefinition{{Name: "proxy", Kind: KindToxiproxy, Port: 15432, Upstream: "a:5432"}}
	d.Targets = append(d.Targets, TargetDefinition{Name: "proxied", Node: "b", Client: "a", Protocol: 6, Ports: []target.Ports{target.Port(5432)}, Proxy: "proxy"})
	return d
}

// TestKilledCrowd kills a process at random moments in the middle of making and removing a
// lab of many nodes, a bridge, base impairments and a service, and cleans up without it, or
// starts again. Afterwards the namespaces, processes and files are those from before.
func TestKilledCrowd(t *testing.T) {
	kills := 4
	if os.Getenv("NETEMD_TEST_LONG") == "1" {
		kills = 200
	}
	d := crowd(t)
	dir := openDir(t)
	m := newManager(t, dir)

	// How long one life takes tells how long to wait for the kill.
	began := time.Now()
	if _, err := newManagerWith(t, dir).Up(t.Context(), d, Identity{}, nil); err != nil {
		t.Fatal(err)
	}
	life := time.Since(began)
	t.Logf("up in %v", life)
	if err := m.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, dir, d)
	order, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	steps := map[string]int{}
	for i := range kills {
		p, err := child.Start("", child.Options{Stderr: os.Stderr}, "up", dir, string(order), "in turns")
		if err != nil {
			t.Fatal(err)
		}
		scanner := bufio.NewScanner(p.Stdout)
		if !scanner.Scan() { // the first step
			t.Fatalf("ended early: %v", p.Wait())
		}
		last := make(chan string, 1)
		go func() {
			step := scanner.Text()
			for scanner.Scan() {
				step = scanner.Text()
			}
			last <- step
		}()
		time.Sleep(time.Duration(random.Int64N(int64(life) * 3 / 2)))
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait()
		step := <-last
		steps[strings.TrimRight(step, " 0123456789/")]++
		if i%2 == 0 {
			err = m.Cleanup(t.Context())
		} else {
			next := newManagerWith(t, dir)
			if err = next.Adopt(t.Context()); err == nil {
				err = next.Cleanup(t.Context())
			}
		}
		if err != nil {
			t.Errorf("killed after %q: %v", step, err)
		}
		nothingLeft(t, dir, d)
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("one life takes %v; killed %d times, after the steps %v", life, kills, steps)
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
	if err := next.Cleanup(t.Context()); err != nil {
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
