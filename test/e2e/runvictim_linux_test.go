package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"netemd/internal/client"
)

// killedLab is the least that has a service to call.
const killedLab = `
lab: nt-killed
nodes:
  client: {}
  server: {services: [{name: web, kind: http-echo, port: 80}]}
links: [{a: client, b: server}]
targets: {http: {node: server, client: client, protocol: tcp, port: 80}}
`

// killedPlan is of one whose phase stays for as long as nobody ends it: all %s but that are
// short.
const killedPlan = `
experiment: killed
version: 1
lab: %s
seed: 1
repeats: 1
load: {probe: http, target: http, timeout: 1s, pace: 10ms, concurrency: 2}
phases: {control: %s, warmup: %s, fault: %s, recovery: %s}
faults: [{impairment: {delay: 5ms}}]
kpis:
  - {must: calls > 0 in control}
  - {must: calls > 0 in warmup}
  - {must: calls > 0}
  - {must: calls > 0 in recovery}
`

// neverLab does not come up: its service is never ready.
const neverLab = `
lab: nt-killed
nodes:
  client: {}
  server: {services: [{name: idle, command: [sleep, "1000"], ready: {http: "http://127.0.0.1:1/"}, ready_timeout: 10m}]}
links: [{a: client, b: server}]
targets: {http: {node: server, client: client, protocol: tcp, port: 80}}
`

// making is before the first phase: the lab is being made.
const making = "making"

var killedPhases = []string{"control", "warmup", "fault", "recovery"}

// victimRun is a run that stays in a phase until something is killed.
type victimRun struct {
	t   *testing.T
	a   *agent
	c   *client.Client
	dir string
	cmd *exec.Cmd
	out syncBuffer
	// service is the process of the lab's service, inside those of the lab's namespaces.
	service int
	inside  []int
}

// syncBuffer may be read while a process writes to it.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// startVictim runs the plan and returns when it is in the phase.
func startVictim(t *testing.T, a *agent, c *client.Client, lab, phase string) *victimRun {
	t.Helper()
	r := &victimRun{t: t, a: a, c: c, dir: filepath.Join(t.TempDir(), "out")}
	last := slices.Index(killedPhases, phase)
	args := []any{lab}
	for i := range killedPhases {
		d := "200ms"
		if i == last {
			d = "60s"
		}
		args = append(args, d)
	}
	plan := filepath.Join(t.TempDir(), "killed.yaml")
	if err := os.WriteFile(plan, fmt.Appendf(nil, killedPlan, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	r.cmd = exec.Command(filepath.Join(bin, "netemctl"), "run", plan, "--socket", a.socket, "--out", r.dir)
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
	r.cmd.WaitDelay = 10 * time.Second
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	seen := false
	faulty := func() bool {
		fs, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen = seen || len(fs) > 0
		return len(fs) > 0
	}
	if !until(30*time.Second, func() bool {
		switch phase {
		case making:
			return strings.Contains(r.out.String(), "idle")
		case "control":
			return strings.Contains(r.out.String(), "control")
		case "warmup":
			return strings.Contains(r.out.String(), "all phases")
		case "fault":
			return faulty()
		}
		return !faulty() && seen
	}) {
		t.Fatalf("the run never came to the phase %s:\n%s", phase, r.out.String())
	}
	time.Sleep(100 * time.Millisecond) // some calls into it
	spaces, _ := filepath.Glob("/run/netns/netem-nt-killed-*")
	for _, ns := range spaces {
		r.inside = append(r.inside, processesIn(t, filepath.Base(ns))...)
	}
	if phase == making {
		return r
	}
	info, _, err := c.Lab(t.Context(), "nt-killed")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range info.Nodes {
		for _, s := range n.Services {
			r.service = s.PID
		}
	}
	if r.service == 0 || !slices.Contains(r.inside, r.service) {
		t.Fatalf("the service, process %d, is not among those of the lab, %v", r.service, r.inside)
	}
	return r
}

// processesIn are the processes in a named network namespace.
func processesIn(t *testing.T, namespace string) (pids []int) {
	t.Helper()
	out, err := exec.Command("ip", "netns", "pids", namespace).Output()
	if err != nil {
		t.Fatalf("processes in %s: %v", namespace, err)
	}
	for word := range strings.FieldsSeq(string(out)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// wait waits for the run's end, and checks its exit code and how long that took.
func (r *victimRun) wait(code int) {
	r.t.Helper()
	begun := time.Now()
	late := time.AfterFunc(15*time.Second, func() { _ = r.cmd.Process.Kill() })
	_ = r.cmd.Wait()
	if !late.Stop() {
		r.t.Errorf("the run did not end within 15 s:\n%s", r.out.String())
	}
	if got := r.cmd.ProcessState.ExitCode(); got != code {
		r.t.Errorf("exit code %d, want %d\n%s", got, code, r.out.String())
	}
	r.t.Logf("ended after %v", time.Since(begun).Round(time.Millisecond))
}

// gone checks that nothing of the run is left: no fault, no namespace, no process.
func (r *victimRun) gone() {
	r.t.Helper()
	left := func() (what []string) {
		what, _ = filepath.Glob("/run/netns/netem-nt-killed-*")
		for _, pid := range r.inside {
			if !ended(pid) {
				what = append(what, fmt.Sprintf("process %d", pid))
			}
		}
		if r.a.cmd.ProcessState != nil {
			return what
		}
		fs, err := r.c.List(context.Background())
		if err != nil {
			r.t.Fatal(err)
		}
		for _, f := range fs {
			what = append(what, "fault "+f.ID)
		}
		return what
	}
	if !until(15*time.Second, func() bool { return len(left()) == 0 }) {
		r.t.Errorf("left: %v\nthe agent said:\n%s", left(), r.a.log)
	}
}

// verdict checks that the folder can be read, and what it says: it is inconclusive for a reason
// in which the words are, and a run that was over before the phase counts.
func (r *victimRun) verdict(phase string, words ...string) {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "result.json"))
	if err != nil {
		r.t.Errorf("the folder: %v", err)
		return
	}
	var result struct {
		Data struct {
			Experiments []struct {
				Name, Verdict, Reason string
				KPIs                  []struct{ Verdict string }
			}
		}
	}
	if err := json.Unmarshal(text, &result); err != nil || len(result.Data.Experiments) != 1 {
		r.t.Fatalf("result.json: %v\n%s", err, text)
	}
	e := result.Data.Experiments[0]
	if e.Name != "killed" || e.Verdict != "inconclusive" {
		r.t.Errorf("%s: verdict %q, want inconclusive", e.Name, e.Verdict)
	}
	for _, w := range words {
		if !strings.Contains(e.Reason, w) {
			r.t.Errorf("reason %q, want %q in it", e.Reason, w)
		}
	}
	for i, k := range e.KPIs {
		if want := slices.Index(killedPhases, phase) > 0 && i == 0; (k.Verdict == "passed") != want {
			r.t.Errorf("the condition on %s is %s", killedPhases[i], k.Verdict)
		}
	}
	if again := run(r.t, exec.Command(filepath.Join(bin, "netemctl"), "report", r.dir)); again.code != 4 || !strings.Contains(again.stdout, "killed: inconclusive") {
		r.t.Errorf("said again: exit code %d, want 4\n%s%s", again.code, again.stdout, again.stderr)
	}
	for _, file := range []string{"samples.jsonl", "events.jsonl"} {
		text, err := os.ReadFile(filepath.Join(r.dir, file))
		if err != nil {
			r.t.Errorf("the folder: %v", err)
		}
		for line := range bytes.Lines(text) {
			if !json.Valid(line) && bytes.HasSuffix(line, []byte("\n")) {
				r.t.Errorf("%s has the line %q", file, line)
			}
		}
	}
}
