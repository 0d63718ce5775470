package agent

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

func TestSessionOfAnAncestor(t *testing.T) {
	const session = "192.0.2.1 50000 192.0.2.2 22"
	// A shell in the session starts another program without its environment, as sudo does.
	cmd := exec.Command("sh", "-c", `env -i sh -c 'echo $$; read line; exit 0'; true`)
	cmd.Env = append(os.Environ(), "SSH_CONNECTION="+session)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	buf := make([]byte, 32)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil || pid == cmd.Process.Pid {
		t.Fatalf("the inner program's pid: %q, %v", buf[:n], err)
	}
	if got := sessionOf(pid); got != session {
		t.Errorf("session %q, want %q", got, session)
	}
	if p, err := parent(pid); err != nil || p != cmd.Process.Pid {
		t.Errorf("parent of %d: %d, %v, want %d", pid, p, err, cmd.Process.Pid)
	}
	for _, pid := range []int{-1, 0, 1} {
		if got := sessionOf(pid); got != "" {
			t.Errorf("pid %d: %q", pid, got)
		}
	}
}
