package netem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// dieEnv makes of a test process one that places a fault and takes it away, and is
// killed after a step: "STEP|NAMESPACE|INDEX|HOOK|CLSACTONLY".
const dieEnv = "NETEMD_TEST_DIE"

// steps are all at which a process can be killed.
var steps = []string{
	"netem.gate.made", "netem.gate.alias", "netem.gate.clsact", "netem.gate.filter", "netem.gate.up",
	"netem.ifb.made", "netem.ifb.alias", "netem.ifb.root", "netem.ifb.up", "netem.clsact.recorded", "netem.clsact.added", "netem.filter.set",
	"netem.filter.gone", "netem.clsact.gone", "netem.ifb.gone", "netem.gate.gone", "never",
}

// dying is the process that is killed.
func dying(order string) {
	words := strings.Split(order, "|")
	failAt = func(s string) {
		if s == words[0] {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	e := New(Config{State: words[1]})
	e.clsactOnly = words[4] == "true"
	if os.Getenv("NETEMD_TEST_NETEM") == "" {
		e.dial = fakeDial
	}
	p := target.Place{Namespace: words[1], Device: "v0", Hook: target.Hook(words[3]), Match: target.Match{Include: []target.Flow{udp}}}
	_, err := fmt.Sscan(words[2], &p.Index)
	ctx := context.Background()
	if err == nil {
		err = e.Set(ctx, p, qdisc.Netem{Delay: ms}, time.Time{})
	}
	if err == nil {
		err = errors.Join(e.Clear(ctx, p), e.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// kill runs such a process until it is killed, or to its end.
func (b *bench) kill(t *testing.T, at string, hook target.Hook) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s|%s|%d|%s|%t", dieEnv, at, b.near, b.place.Index, hook, clsactOnly))
	cmd.Stderr = os.Stderr
	err := cmd.Run()
	killed := cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled()
	if killed != (at != "never") || !killed && err != nil {
		t.Fatalf("at %q: %v", at, err)
	}
}

// sweptBy sweeps the namespace of that name.
func sweptBy(t *testing.T, e *Engine, name string) (removed []string, err error) {
	err = namespaces.Within(name, func(ns *namespaces.Session) (err error) {
		removed, err = e.sweep(t.Context(), ns)
		return err
	})
	return removed, err
}

// A process that is killed after any of its steps leaves nothing that Sweep does not
// find, with a clsact of its own or somebody else's.
func TestKilled(t *testing.T) { bothWays(t, testKilled) }

func testKilled(t *testing.T) {
	b := newBench(t)
	sweeper := New(Config{State: b.near})
	if os.Getenv("NETEMD_TEST_NETEM") == "" {
		sweeper.dial = fakeDial
	}
	other := detourEngine(t, "another agent's")
	for _, with := range []string{"nothing", "a clsact", "a filter", "another agent"} {
		if os.Getenv("NETEMD_TEST_LONG") == "" && with == "a filter" {
			continue // much as beside a clsact
		}
		if !clsactOnly && (with == "a clsact" || with == "a filter") {
			continue // not the way then
		}
		switch with {
		case "a clsact":
			b.tc(t, "qdisc add dev v0 clsact")
		case "a filter":
			b.tc(t, "filter add dev v0 egress protocol ip pref 1 u32 match u32 0 0 flowid 1:1")
		case "another agent":
			if clsactOnly {
				b.tc(t, "qdisc del dev v0 clsact")
			}
			if err := other.Set(t.Context(), b.foreign(target.Egress, udp), qdisc.Netem{Delay: ms}, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		before := b.tree(t)
		for i, at := range steps {
			if (at == "netem.clsact.recorded" || at == "netem.clsact.added") && (with != "nothing" || !clsactOnly) || strings.HasPrefix(at, "netem.gate") && clsactOnly {
				continue
			}
			hooks := []target.Hook{target.Egress, target.Ingress}
			switch {
			case clsactOnly:
				hooks = hooks[i%2 : i%2+1]
			case strings.HasPrefix(at, "netem.gate"): // there is none at ingress
				hooks = hooks[:1]
			}
			for _, hook := range hooks {
				b.kill(t, at, hook)
				for range 2 {
					if _, err := sweptBy(t, sweeper, b.near); err != nil {
						t.Errorf("beside %s, killed at %q: %v", with, at, err)
					}
				}
				if after := b.tree(t); after != before {
					t.Fatalf("beside %s, killed at %q (-before +after):\n%s", with, at, cmp.Diff(before, after))
				}
			}
		}
	}
	// Where the other agent came second, the clsact that the dead one made is its to
	// remove.
	if err := other.Clear(t.Context(), b.foreign(target.Egress, udp)); err != nil {
		t.Fatal(err)
	}
	other.drains.Wait()
	before := b.tree(t)
	b.kill(t, "netem.filter.set", target.Egress)
	if err := other.Set(t.Context(), b.foreign(target.Egress, udp), qdisc.Netem{Delay: ms}, time.Time{}); err != nil {
		t.Fatal(err)
	}
	removed, err := sweptBy(t, sweeper, b.near)
	if err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(removed, func(r string) bool { return strings.HasSuffix(r, " in netns "+b.near+", for a fault at v0") }) {
		t.Errorf("the sweep says that it removed %q, want the device of the killed agent's fault at v0", removed)
	}
	if st, err := other.Read(t.Context(), b.foreign(target.Egress, udp)); err != nil || st.Netem.Delay != ms {
		t.Errorf("the other agent's fault: %v, %v", st.Netem, err)
	}
	if err := other.Clear(t.Context(), b.foreign(target.Egress, udp)); err != nil {
		t.Error(err)
	}
	other.drains.Wait()
	if after := b.tree(t); after != before {
		t.Errorf("the clsact was handed over (-before +after):\n%s", cmp.Diff(before, after))
	}
}

// tc runs tc commands in b.near.
func (b *bench) tc(t *testing.T, commands ...string) {
	t.Helper()
	for _, c := range commands {
		if _, err := tcOf(b.near, words(c)...); err != nil {
			t.Fatal(err)
		}
	}
}
