package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"netemd/internal/client"
)

// killedWorld is an agent, a client of it and a lab's file.
type killedWorld struct {
	a   *agent
	c   *client.Client
	lab string
}

func newKilledWorld(t *testing.T, lab string) *killedWorld {
	t.Helper()
	w := &killedWorld{a: start(t), lab: filepath.Join(t.TempDir(), "lab.yaml")}
	if err := os.WriteFile(w.lab, []byte(lab), 0o600); err != nil {
		t.Fatal(err)
	}
	w.connect(t)
	t.Cleanup(func() { _ = w.c.Close() })
	return w
}

func (w *killedWorld) connect(t *testing.T) {
	t.Helper()
	var err error
	if w.c, err = client.Open(client.Endpoint{Socket: w.a.socket}); err != nil {
		t.Fatal(err)
	}
}

// again starts the next agent.
func (w *killedWorld) again(t *testing.T) {
	t.Helper()
	_ = w.c.Close()
	w.a.run()
	w.connect(t)
}

// runner ends netemctl in a phase by a signal.
func (w *killedWorld) runner(t *testing.T, phase string, sig syscall.Signal) {
	t.Helper()
	r := startVictim(t, w.a, w.c, w.lab, phase)
	_ = r.cmd.Process.Signal(sig)
	r.wait(map[syscall.Signal]int{syscall.SIGKILL: -1, syscall.SIGINT: 130, syscall.SIGTERM: 143}[sig])
	r.gone()
	if sig == syscall.SIGKILL {
		r.verdict(killedPhases[0], "the run did not end") // nothing has been judged
		return
	}
	r.verdict(phase, sig.String()+" signal received")
}

// agentKilled kills the agent; what it leaves a cleanup clears, or the next agent.
func (w *killedWorld) agentKilled(t *testing.T, phase string, cleanup bool) {
	t.Helper()
	r := startVictim(t, w.a, w.c, w.lab, phase)
	w.a.kill()
	r.wait(4)
	if cleanup {
		clean := run(t, exec.Command(filepath.Join(bin, "netemd"), "cleanup", "--state-dir", w.a.stateDir))
		if clean.code != 0 || !strings.Contains(clean.stdout, "lab nt-killed") {
			t.Errorf("cleanup: exit code %d, %s%s", clean.code, clean.stdout, clean.stderr)
		}
		r.gone()
		w.again(t)
	} else {
		w.again(t)
		r.c = w.c
		r.gone()
	}
	r.verdict(phase, "agent unreachable", "netemd cleanup")
}

// agentStopped ends the agent in order.
func (w *killedWorld) agentStopped(t *testing.T, phase string) {
	t.Helper()
	r := startVictim(t, w.a, w.c, w.lab, phase)
	w.a.stop()
	r.wait(4)
	r.gone()
	r.verdict(phase, "the agent is stopping")
	w.again(t)
}

// service kills the service of the lab.
func (w *killedWorld) service(t *testing.T, phase string) {
	t.Helper()
	r := startVictim(t, w.a, w.c, w.lab, phase)
	if err := syscall.Kill(r.service, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.wait(4)
	r.gone()
	r.verdict(phase, "service web of lab nt-killed ended by itself: killed by SIGKILL")
}

// TestRunKilled ends the runner, the agent and a service in each phase of a run.
func TestRunKilled(t *testing.T) {
	w := newKilledWorld(t, killedLab)
	for i, phase := range killedPhases {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT, syscall.SIGTERM} {
			t.Run(fmt.Sprintf("%s/runner/%v", phase, sig), func(t *testing.T) { w.runner(t, phase, sig) })
		}
		// What a cleanup does in the one phase, the next agent does in the other.
		t.Run(phase+"/agent/killed", func(t *testing.T) { w.agentKilled(t, phase, i%2 == 0) })
		t.Run(phase+"/agent/stopped", func(t *testing.T) { w.agentStopped(t, phase) })
		t.Run(phase+"/service", func(t *testing.T) { w.service(t, phase) })
	}
}

// TestRunKilledInTheMaking ends the runner and the agent while the lab is made.
func TestRunKilledInTheMaking(t *testing.T) {
	w := newKilledWorld(t, neverLab)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(fmt.Sprintf("runner/%v", sig), func(t *testing.T) { w.runner(t, making, sig) })
	}
	t.Run("agent/killed", func(t *testing.T) { w.agentKilled(t, making, true) })
	t.Run("agent/stopped", func(t *testing.T) { w.agentStopped(t, making) })
}

// restartedPlan has nothing but faults of its own: the lab is somebody else's.
const restartedPlan = `
experiment: restarted
version: 1
seed: 1
repeats: 1
phases: {control: command, fault: command}
faults: [{target: http, impairment: {loss: 100%}}]
kpis: [{must: command == 0}]
`

// TestRunAgentRestarted kills the agent under a fault and starts the next: the fault of the first
// is gone, so that nothing passed.
func TestRunAgentRestarted(t *testing.T) {
	a := start(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	a.must("lab", "up", file("lab.yaml", killedLab))
	pipe := filepath.Join(dir, "go-on")
	script := "test $NETEMD_PHASE = control || { echo under way; until test -e " + pipe + "; do sleep 0.1; done; }"
	cmd := exec.Command(filepath.Join(bin, "netemctl"), "run", file("plan.yaml", restartedPlan), "--socket", a.socket, "--", "sh", "-c", script)
	var out syncBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	if !until(30*time.Second, func() bool { return strings.Contains(out.String(), "under way") }) {
		t.Fatalf("the command never ran under the fault:\n%s", out.String())
	}
	a.kill()
	a.run()
	file("go-on", "")
	late := time.AfterFunc(15*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	late.Stop()
	if code := cmd.ProcessState.ExitCode(); code != 4 || !strings.Contains(out.String(), "restarted: inconclusive") {
		t.Errorf("exit code %d, want 4\n%s", code, out.String())
	}
	if got := a.must("list").stdout; strings.Contains(got, "http") {
		t.Errorf("a fault is left:\n%s", got)
	}
	a.must("lab", "down", "nt-killed")
}
