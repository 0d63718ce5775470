package namespaces

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A program that is started so sees the devices of the namespace below /sys, and what it and
// others see elsewhere stays.
func TestStartShown(t *testing.T) {
	name := create(t)
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	n, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	var out strings.Builder
	cmd := exec.Command("sh", "-c", "ls /sys/class/net; pwd; ls -d /proc/self/ns")
	cmd.Dir, cmd.Stdout, cmd.Stderr = t.TempDir(), &out, &out
	if err := errors.Join(n.StartShown(cmd), cmd.Wait()); err != nil {
		t.Fatal(err, out.String())
	}
	if got, want := out.String(), "lo\n"+cmd.Dir+"\n/proc/self/ns\n"; got != want {
		t.Errorf("it sees %q, want %q", got, want)
	}
	if after, err := os.ReadFile("/proc/self/mountinfo"); err != nil || string(after) != string(before) {
		t.Errorf("mounts of this process, %v:\n%s\nwant\n%s", err, after, before)
	}
}
