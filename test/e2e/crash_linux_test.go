package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
)

// TestCrash kills an agent at every one of its steps, and looks at what is left after the
// next start, or a cleanup: nothing.
func TestCrash(t *testing.T) {
	grounds := make(chan *ground, crashers())
	for range cap(grounds) {
		grounds <- prepare(t)
	}
	before := objects()
	for _, name := range tried() {
		t.Run(name, func(t *testing.T) {
			for i, step := range steps() {
				if why := elsewhere(step, fault.Engine(name), haveTCX()); why != "" {
					t.Logf("%s is passed %s", step, why)
					continue
				}
				t.Run(step, func(t *testing.T) {
					t.Parallel()
					g := <-grounds
					defer func() { grounds <- g }()
					mine := g.of(t)
					for n := 1; n <= passages(step) && crash(t, mine, fault.Engine(name), step, n, (i+n)%2 == 0); n++ {
					}
					g.before = mine.before
				})
			}
		})
	}
	unheld(t, before)
}

// steps are those at which agents are killed: all, or in the short run a few of them that
// are reached soon; where the machine is emulated, of what the machine itself has not.
func steps() []string {
	all := failpoint.Names()
	switch {
	case long():
		return all
	case slow():
		return []string{"netem.gate.up", "netem.ifb.root", "netem.filter.gone"}
	}
	some := all[:0]
	for i, step := range all {
		if a, _ := actOf(step); i%9 == 0 && !a.slow {
			some = append(some, step)
		}
	}
	return some
}

// passages is how many of a step are tried, if there are so many: one play passes most of
// the steps of an engine several times, for other faults.
func passages(step string) int {
	if a, _ := actOf(step); a.many && long() && !slow() {
		return 4
	}
	return 1
}

// crashers is how many agents are killed at a time: they wait more than they work.
func crashers() int {
	switch {
	case slow():
		return 1
	case long():
		return 3
	}
	return 2 // each needs a ground, which takes its time too
}

// oneLab is held by who has a lab.
var oneLab sync.Mutex

// crash is one life that ends at the n-th passage of a step, and what comes after it. It
// reports whether there was such a passage.
func crash(t *testing.T, g *ground, engine fault.Engine, step string, n int, restart bool) bool {
	a, ok := actOf(step)
	if !ok {
		t.Fatal("no act passes this step")
	}
	dir, err := fragileProgram()
	if err != nil {
		t.Fatal(err)
	}
	if a.lab {
		oneLab.Lock()
		defer oneLab.Unlock()
	}
	p := &play{victim: newVictim(t, home{program: filepath.Join(dir, "netemd")}), g: g, engine: engine}
	p.labs = a.lab
	if a.name == "follow" {
		p.home.hosts = filepath.Join(t.TempDir(), "hosts")
		if err := os.WriteFile(p.home.hosts, []byte("127.0.0.1 localhost\n10.81.0.2 db.example\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if a.earlier != nil {
		p.start("", a.args...)
		a.earlier(p)
	}
	if p.start(fmt.Sprintf("%s:%d", step, n), a.args...); !p.dead() {
		a.run(p)
	}
	if n > 1 && !p.within(100*time.Millisecond) {
		if p.term(); !p.killed() { // it may be, when it clears what is left
			g.same(t, "after a life to its end the devices are", p.victim)
			return false
		}
	}
	if !p.within(patience(10 * time.Second)) {
		p.kill()
		t.Fatalf("the step was not reached (%v); netemd said:\n%s", p.err, p.said())
	}
	if !p.killed() {
		t.Fatalf("netemd ended by itself (%v); it said:\n%s", p.err, p.said())
	}
	if p.err != nil {
		t.Errorf("before that: %v", p.err)
	}
	p.recover(restart, step)
	g.same(t, fmt.Sprintf("after passage %d the devices are", n), p.victim)
	for _, look := range p.after {
		look()
	}
	return !t.Failed()
}

// same checks that all is as it was before the victim.
func (g *ground) same(t *testing.T, what string, v *victim) {
	t.Helper()
	var now string
	var left []string
	for end := time.Now().Add(patience(10 * time.Second)); ; time.Sleep(50 * time.Millisecond) {
		now, left = g.dump(), remains(v.stateDir, v.labs)
		if now == g.before && len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	t.Logf("netemd said:\n%s", v.said())
	if diff := cmp.Diff(g.before, now); diff != "" {
		t.Errorf("%s not as before (-before +after):\n%s", what, diff)
		g.before = now // the next one is to be judged by itself
	}
	for _, l := range left {
		t.Errorf("left: %s", l)
	}
}

// unheld checks that no program or map of netemd's is left that nobody holds. The kernel
// takes its time with the last of them.
func unheld(t *testing.T, before []string) {
	t.Helper()
	var left []string
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		left = slices.DeleteFunc(objects(), func(o string) bool { return slices.Contains(before, o) })
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			break
		}
	}
	t.Errorf("in the kernel, and held by nobody: %q", left)
}
