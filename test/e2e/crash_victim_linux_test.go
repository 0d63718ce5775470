package e2e

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"netemd/internal/client"
	"netemd/internal/failpoint"
)

// fragileProgram is the folder with a netemd that has failpoints: beside the others, or
// built at the first call, without C: with it each of the many starts has its threads wait
// for each other's signals and spin meanwhile (libcap's psx), for seconds on a busy machine.
var fragileProgram = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(bin, fragile)
	if _, err := os.Stat(filepath.Join(dir, "netemd")); err == nil {
		return dir, nil
	}
	build := exec.Command("go", "build", "-tags", "failpoints", "-o", dir+"/", "netemd/cmd/netemd")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err != nil {
		err = errors.New(err.Error() + ": " + string(out))
	}
	return dir, err
})

// victim is an agent that is to be killed.
type victim struct {
	t        *testing.T
	home     home
	stateDir string
	labs     bool // it makes some
	log      *bytes.Buffer
	cmd      *exec.Cmd
	ended    chan struct{} // closed at its end
	client   *client.Client
}

// newVictim has a state folder until the test ends, and no process yet.
func newVictim(t *testing.T, h home) *victim {
	t.Helper()
	dir, err := os.MkdirTemp("", "netemd-crash-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // PostgreSQL, which is not root, has to get through
	}
	if err != nil {
		t.Fatal(err)
	}
	v := &victim{t: t, home: h, stateDir: filepath.Join(dir, "s")}
	t.Cleanup(func() {
		v.kill()
		if t.Failed() {
			_ = v.netemd("cleanup").Run()
		}
		_ = os.RemoveAll(dir)
	})
	return v
}

// netemd is a command line of the program with this victim's folder.
func (v *victim) netemd(args ...string) *exec.Cmd {
	return v.home.command(append(args, "--state-dir", v.stateDir)...)
}

// start runs it, to be killed at the step, or at none, and connects. When it ended before
// it answered, the victim has no client.
func (v *victim) start(step string, args ...string) {
	v.t.Helper()
	v.launch(step, args...)
	v.connect()
}

// launch is start without connecting.
func (v *victim) launch(step string, args ...string) {
	v.t.Helper()
	v.log = &bytes.Buffer{}
	v.cmd = v.netemd(append(args, "--log-level", "debug")...)
	v.cmd.Stderr = v.log
	if step != "" {
		v.cmd.Env = append(v.cmd.Environ(), failpoint.Env+"="+step)
	}
	if err := v.cmd.Start(); err != nil {
		v.t.Fatal(err)
	}
	v.ended = make(chan struct{})
	cmd, ended := v.cmd, v.ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
}

// connect waits until it answers.
func (v *victim) connect() {
	v.t.Helper()
	socket := filepath.Join(v.stateDir, "netemd.sock")
	for end := time.Now().Add(patience(time.Minute)); time.Now().Before(end) && !v.dead(); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(socket); err != nil {
			continue
		}
		c, err := client.Open(client.Endpoint{Socket: socket})
		if err != nil {
			continue
		}
		if _, err := c.List(v.t.Context()); err != nil {
			_ = c.Close()
			continue
		}
		v.client = c
		return
	}
	if !v.dead() {
		v.kill()
		v.t.Fatalf("netemd did not answer in time; it said:\n%s", v.log)
	}
}

// patience is how long to wait for what may take d where several others work too.
func patience(d time.Duration) time.Duration {
	if slow() {
		return 10 * d
	}
	return d
}

// dead reports whether it has ended.
func (v *victim) dead() bool { return v.within(0) }

// within reports whether it ends within d.
func (v *victim) within(d time.Duration) bool {
	select {
	case <-v.ended:
		return true
	default:
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-v.ended:
		return true
	case <-timer.C:
		return false
	}
}

// kill ends it at once, if it runs.
func (v *victim) kill() {
	if v.cmd == nil {
		return
	}
	_ = v.cmd.Process.Kill()
	<-v.ended
	v.release()
}

// release closes the connection.
func (v *victim) release() {
	if v.client != nil {
		_ = v.client.Close()
		v.client = nil
	}
}

// stop ends it in order.
func (v *victim) stop() {
	v.t.Helper()
	if v.term(); v.killed() {
		v.t.Errorf("netemd was killed at its end; it said:\n%s", v.log)
	}
}

// term asks it to end, and waits for that. It may be killed meanwhile.
func (v *victim) term() {
	v.t.Helper()
	v.release()
	_ = v.cmd.Process.Signal(syscall.SIGTERM)
	if !v.within(patience(2 * time.Minute)) {
		v.kill()
		v.t.Errorf("netemd did not stop; it said:\n%s", v.log)
	}
	if code := v.cmd.ProcessState.ExitCode(); code != 0 && !v.killed() {
		v.t.Errorf("netemd did not end well: exit code %d; it said:\n%s", code, v.log)
	}
}

// recover is what comes after a kill: the next start and its end, or a cleanup. The first
// is killed at the step too, if it gets there.
func (v *victim) recover(restart bool, step string) {
	v.t.Helper()
	v.release()
	if restart {
		if v.start(step); v.dead() && v.killed() {
			v.start("")
		}
		if v.dead() {
			v.t.Fatalf("netemd did not start again; it said:\n%s", v.log)
		}
		if v.term(); v.killed() {
			v.start("")
			v.stop()
		}
		return
	}
	cleanup := func(step string) (r result, killed bool) {
		cmd := v.netemd("cleanup")
		if step != "" {
			cmd.Env = append(cmd.Environ(), failpoint.Env+"="+step)
		}
		r = run(v.t, cmd)
		status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		return r, status.Signal() == syscall.SIGKILL
	}
	r, killed := cleanup(step)
	if killed {
		r, _ = cleanup("")
	}
	if r.code != 0 {
		v.t.Errorf("cleanup: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
}

// killed reports whether it was, and not by the test.
func (v *victim) killed() bool {
	status, ok := v.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signal() == syscall.SIGKILL
}

// said are the last lines of what it said.
func (v *victim) said() string {
	lines := strings.Split(strings.TrimSpace(v.log.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// ctx is for a call to it.
func (v *victim) ctx() context.Context { return v.t.Context() }
