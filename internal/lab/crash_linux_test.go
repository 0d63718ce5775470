package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"netemd/internal/child"
	"netemd/namespaces"
)

// upAndStay is a child that makes a lab and tells its steps. Then it stays until it is
// killed; with a third argument it takes the lab down and makes it again until then.
func upAndStay(args []string) int {
	var d Definition
	if err := json.Unmarshal([]byte(args[1]), &d); err != nil {
		return 3
	}
	m, err := New(Config{StateDir: args[0], Engine: &impairer{}})
	if err != nil {
		return 4
	}
	for {
		if _, err := m.Up(context.Background(), d, Identity{}, func(step string) { fmt.Println(step) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 5
		}
		fmt.Println("up")
		if len(args) == 2 {
			select {}
		}
		if _, err := m.Down(context.Background(), d.Name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 6
		}
	}
}

// TestKilled kills a process that makes a lab, after each of its steps and a moment
// more, and cleans up without it.
func TestKilled(t *testing.T) {
	d := testDefinition(t, postgresService, proxyService)
	dir := openDir(t)
	m := newManager(t, dir)
	for lines, most := range []time.Duration{
		10 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond, 50 * time.Millisecond, 20 * time.Millisecond, time.Millisecond,
	} {
		killAndClean(t, m, d, lines+1, most)
	}
}

// TestKilledInTurns kills a process that makes and removes a lab without services over
// and over.
func TestKilledInTurns(t *testing.T) {
	d := testDefinition(t)
	m := newManager(t, openDir(t))
	for range 20 {
		killAndClean(t, m, d, 1, 120*time.Millisecond, "in turns")
	}
}

var random = rand.New(rand.NewPCG(1, 2))

// killAndClean starts the child, kills it at a random moment, at most so long after
// so many lines of its output, and cleans up.
func killAndClean(t *testing.T, m *Manager, d Definition, lines int, most time.Duration, more ...string) {
	t.Helper()
	order, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{m.cfg.StateDir, string(order)}, more...)
	p, err := child.Start("", child.Options{Stderr: os.Stderr}, "up", args...)
	if err != nil {
		t.Fatal(err)
	}
	scanner := bufio.NewScanner(p.Stdout)
	for range lines {
		if !scanner.Scan() {
			t.Fatalf("ended early: %v", p.Wait())
		}
	}
	step, moment := scanner.Text(), time.Duration(random.Int64N(int64(most)))
	time.Sleep(moment)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.Wait()
	pids, err := namespaces.PIDs(d.Namespace("server"))
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, namespaces.ErrStale) {
		t.Error(err)
	}
	if step == "up" && len(more) == 0 && len(pids) < 2 {
		t.Errorf("processes %v in the server after the kill, want the services to live on", pids)
	}
	if err := cleaned(t.Context(), m); err != nil {
		t.Errorf("killed %v after %q: %v", moment, step, err)
	}
	t.Logf("killed %v after %q with %d processes inside", moment, step, len(pids))
	nothingLeft(t, m.cfg.StateDir, d)
}
