package lab

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"netemd/internal/child"
)

// TestKilled kills a process that makes a lab, after each of its steps and a moment
// more, and cleans up without it.
func TestKilled(t *testing.T) {
	d := testDefinition(t, postgresService, proxyService)
	order, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	dir := openDir(t)
	m := newManager(t, dir)
	random := rand.New(rand.NewPCG(1, 2))
	const steps = 6 // those of Up, and "up"
	for round := range 2 * steps {
		after := round % steps
		p, err := child.Start("", child.Options{Stderr: os.Stderr}, "up", dir, string(order))
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(p.Stdout)
		for range after + 1 {
			if !lines.Scan() {
				t.Fatalf("ended early: %v", p.Wait())
			}
		}
		step := lines.Text()
		// The first steps take 10 ms, initdb and the first start a second.
		moment := time.Duration(random.IntN(20)) * time.Millisecond
		if round >= steps {
			moment *= 20
		}
		time.Sleep(moment)
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait()
		inside := pidsInside(t, d)
		if step == "up" && inside < 2 {
			t.Errorf("%d processes in the server after the kill, want the services to live on", inside)
		}
		if err := m.Cleanup(t.Context()); err != nil {
			t.Errorf("killed %v after %q: %v", moment, step, err)
		}
		t.Logf("killed %v after %q with %d processes inside", moment, step, inside)
		nothingLeft(t, dir, d)
	}
}
