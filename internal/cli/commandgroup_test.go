package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestRunGroup has a command end, and be ended, with what it started.
func TestRunGroup(t *testing.T) {
	for _, c := range []struct {
		script string
		limit  time.Duration
		code   int
		err    error
	}{
		{"sleep 300 & echo $!; exit 3", time.Minute, 3, nil},
		{"sleep 300 & echo $!; wait", 300 * time.Millisecond, exitSignal + int(syscall.SIGTERM), errLimit},
	} {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeoutCause(t.Context(), c.limit, errLimit)
		code, err := RunGroup(ctx, Command{Argv: []string{"sh", "-c", c.script}, Stdout: &out, Stderr: &out, Env: []string{"A=1"}})
		cancel()
		if code != c.code || !errors.Is(err, c.err) {
			t.Errorf("%s: exit code %d, %v; want %d, %v", c.script, code, err, c.code, c.err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(out.String()))
		if err != nil {
			t.Fatalf("%q: %v", out.String(), err)
		}
		gone(t, pid)
	}
	var out bytes.Buffer
	if code, err := RunGroup(t.Context(), Command{Argv: []string{"netemctl-no-such-command"}, Stderr: &out}); code != exitNotFound || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}

// gone waits for a process that was killed and belongs to nobody here: a zombie is gone.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil || bytes.Contains(stat, []byte(") Z ")) {
			return
		}
	}
	t.Errorf("process %d is still there", pid)
}
