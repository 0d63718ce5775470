package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const sleepPlan = `experiment: sleeper
version: 1
repeats: 1
phases: {fault: command}
faults: [{target: http, impairment: {loss: 100%}}]
kpis: [{must: command == 0}]
`

// TestRunCommandKilled ends netemctl beside a command, by ctrl-C and by SIGKILL: the command ends
// with what it started, and the fault, too.
func TestRunCommandKilled(t *testing.T) {
	a := start(t)
	a.must("lab", "up", "echo")
	defer a.must("lab", "down", "echo")
	dir := t.TempDir()
	plan := filepath.Join(dir, "sleeper.yaml")
	if err := os.WriteFile(plan, []byte(sleepPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	for sig, want := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGKILL: -1} {
		pids := filepath.Join(dir, sig.String())
		var out bytes.Buffer
		cmd := exec.Command(filepath.Join(bin, "netemctl"), "run", plan, "--socket", a.socket, "--", "sh", "-c", "sleep 300 & echo $$ $! > '"+pids+"'; wait")
		cmd.Stdout, cmd.Stderr = &out, &out
		cmd.WaitDelay = 10 * time.Second
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var started []string
		if !until(30*time.Second, func() bool {
			text, _ := os.ReadFile(pids)
			started = strings.Fields(string(text))
			return len(started) == 2
		}) {
			_ = cmd.Process.Kill()
			t.Fatalf("no command ran:\n%s", out.String())
		}
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != want {
			t.Errorf("%v: exit code %d, want %d\n%s", sig, code, want, out.String())
		}
		for _, pid := range started {
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			if !until(10*time.Second, func() bool { return ended(n) }) {
				t.Errorf("%v: process %d of the command is still there", sig, n)
			}
		}
		if !until(15*time.Second, func() bool { return !strings.Contains(a.must("list").stdout, "http") }) {
			t.Errorf("%v: a fault is left:\n%s", sig, a.must("list").stdout)
		}
	}
}

// until asks again and again whether something is so, for at most d.
func until(d time.Duration, so func() bool) bool {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if so() {
			return true
		}
	}
	return so()
}

// ended reports whether a process is no more, or is one of which only its exit code is left.
func ended(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}
