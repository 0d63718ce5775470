package service

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestProcessStop(t *testing.T) {
	// It does not listen to SIGTERM.
	cmd := exec.Command("sh", "-c", "trap '' TERM; echo; while :; do sleep 0.05; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(Step{unix.SIGTERM, 50 * time.Millisecond}); err == nil || !strings.Contains(err.Error(), "still runs after") {
		t.Errorf("stop without a kill: %v", err)
	}
	if err := p.Stop(Step{unix.SIGTERM, 50 * time.Millisecond}, Step{unix.SIGKILL, 5 * time.Second}); err != nil {
		t.Error(err)
	}
	if p.Alive() { // a zombie now
		t.Error("a zombie is taken for alive")
	}
	_ = cmd.Wait()
	if err := p.Stop(Step{unix.SIGKILL, time.Second}); err != nil {
		t.Errorf("stop of what has ended: %v", err)
	}
}
