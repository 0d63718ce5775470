package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestSSHAbove(t *testing.T) {
	proc := t.TempDir()
	process := func(pid, parent int, name, environ string) {
		t.Helper()
		dir := filepath.Join(proc, fmt.Sprint(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"stat": fmt.Sprintf("%d (%s) S %d 1 1 0", pid, name, parent), "environ": environ} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	process(1, 0, "init", "SSH_CONNECTION=of nobody")
	process(10, 1, "sshd: (x) y", "")
	process(20, 10, "bash", "HOME=/root\x00SSH_CONNECTION=192.0.2.1 50000 192.0.2.2 22\x00")
	process(30, 20, "sudo", "A=B\x00")
	process(40, 999, "orphan", "SSH_CONNECTION_X=1\x00SSH_CONNECTION=\x00")
	process(50, 50, "loop", "")
	for pid, want := range map[int]string{30: "192.0.2.1 50000 192.0.2.2 22", 20: "192.0.2.1 50000 192.0.2.2 22", 10: "", 40: "", 50: "", 1: "", 0: ""} {
		if got := sshAbove(proc, pid); got != want {
			t.Errorf("process %d: %q, want %q", pid, got, want)
		}
	}
}

// TestSSHConnectionIsSent: with packet faults, and only with them.
func TestSSHConnectionIsSent(t *testing.T) {
	for line, want := range map[string]string{
		"loss 20% --dev v0": "192.0.2.1 50000 192.0.2.2 22", "loss 20% --target pg": "192.0.2.1 50000 192.0.2.2 22", "toxic down --target pg": "",
	} {
		w := world{agent: newFakeAgent(), ssh: "192.0.2.1 50000 192.0.2.2 22"}
		if code := w.run(t.Context(), shellWords(line)...); code != exitDone || len(w.agent.faults) != 1 {
			t.Fatalf("%s: exit code %d: %s", line, code, w.stderr.String())
		}
		if got := w.agent.faults[0].Spec.SSHConnection; got != want {
			t.Errorf("%s: sent %q, want %q", line, got, want)
		}
	}
}
