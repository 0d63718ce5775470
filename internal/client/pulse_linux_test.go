package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/fault"
)

// process starts an agent in a process of its own.
func process(t *testing.T) (socket string, agent *os.Process) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), agentVariable+"="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	eventually(t, "the agent listens", func() bool {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return socket, cmd.Process
}

func signal(t *testing.T, p *os.Process, s unix.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Fatal(err)
	}
	if s != unix.SIGSTOP {
		return
	}
	for end := time.Now().Add(longest); !allStopped(p.Pid); time.Sleep(time.Millisecond) { // a thread stops when its turn comes
		if time.Now().After(end) {
			t.Fatal("the agent does not stop")
		}
	}
}

// allStopped reports whether every thread of a process is stopped (proc(5), stat).
func allStopped(pid int) bool {
	stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, name := range stats {
		text, err := os.ReadFile(name)
		if _, rest, _ := strings.Cut(string(text), ") "); err != nil || !strings.HasPrefix(rest, "T") {
			return false
		}
	}
	return len(stats) > 0
}

// promised is how soon the silence of an agent is told. A machine that stood still
// meanwhile is given another try; longest is never allowed.
const (
	promised = 2 * time.Second
	longest  = 20 * time.Second
)

// TestStopped: an agent that is stopped, before a call or in the middle of one, is told in
// time, whatever the call is.
func TestStopped(t *testing.T) {
	// begun is closed when the agent may be stopped.
	type ways map[string]func(c *Client, begun func()) error
	for name, call := range (ways{
		"get": func(c *Client, begun func()) error {
			time.AfterFunc(100*time.Millisecond, begun)
			_, err := c.Get(context.Background(), "f1")
			return err
		},
		"apply": func(c *Client, begun func()) error {
			begun()
			_, err := c.Apply(context.Background(), spec())
			return err
		},
		"watch": func(c *Client, begun func()) error {
			return c.Watch(context.Background(), 0, "", func(fault.Event) { begun() })
		},
		"hold": func(c *Client, begun func()) error {
			begun()
			_, err := c.Hold(context.Background(), spec(), nil)
			return err
		},
	}) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for try := 1; ; try++ {
				socket, agent := process(t)
				c := open(t, Endpoint{Socket: socket})
				began := make(chan time.Time, 1)
				err := call(c, func() {
					signal(t, agent, unix.SIGSTOP)
					began <- time.Now()
				})
				took := time.Since(<-began)
				if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "is stopped") || !strings.Contains(fault.HintOf(err), "kill -CONT") {
					t.Fatalf("%v (hint %q)", err, fault.HintOf(err))
				}
				if took <= promised {
					return
				}
				if t.Logf("told after %v", took); try == 4 || took > longest {
					t.Fatalf("told after %v, want %v", took, promised)
				}
			}
		})
	}
}

// TestStoppedWhileHeld: the holder is told, and goes on when the agent does.
func TestStoppedWhileHeld(t *testing.T) {
	t.Parallel()
	socket, agent := process(t)
	c := open(t, Endpoint{Socket: socket})
	w := newTold()
	h, err := c.Hold(t.Context(), spec(), w.notify)
	if err != nil {
		t.Fatal(err)
	}
	signal(t, agent, unix.SIGSTOP)
	if got := w.wait(t, 1); got[0] != Silent {
		t.Errorf("told %v", got)
	}
	if err := h.Renew(); err != nil {
		t.Errorf("renew: %v", err)
	}
	signal(t, agent, unix.SIGCONT)
	if got := w.wait(t, 2); got[1] != Answers {
		t.Errorf("told %v", got)
	}
	signal(t, agent, unix.SIGSTOP)
	began := time.Now()
	if _, err := h.Release(t.Context()); !errors.Is(err, ErrUnreachable) || time.Since(began) > longest {
		t.Errorf("release after %v: %v", time.Since(began), err)
	}
}

// TestStoppedBefore: a stopped agent accepts connections, but answers none.
func TestStoppedBefore(t *testing.T) {
	t.Parallel()
	socket, agent := process(t)
	open(t, Endpoint{Socket: socket})
	signal(t, agent, unix.SIGSTOP)
	unanswered(t, Endpoint{Socket: socket}, "does not answer within")
}

// TestBusy: an agent whose turn has not come is not silent.
func TestBusy(t *testing.T) {
	if n := activity(os.Getpid()); n == 0 || activity(0)+activity(1<<30) != 0 {
		t.Errorf("this process switched %d times, those that are not known %d", n, activity(0)+activity(1<<30))
	}
	if busy(0) || stopped(0) || busy(1<<30) {
		t.Error("a process that is not known is busy")
	}
	eventually(t, "this process, which runs, is busy", func() bool { return busy(os.Getpid()) })
	_, agent := process(t)
	eventually(t, "a process that waits is not busy", func() bool { return !busy(agent.Pid) })
	signal(t, agent, unix.SIGSTOP)
	eventually(t, "stopped", func() bool { return stopped(agent.Pid) })
	still := activity(agent.Pid)
	time.Sleep(2 * beatEvery)
	if now := activity(agent.Pid); now != still {
		t.Errorf("a stopped process switched %d times", now-still)
	}
	if busy(agent.Pid) {
		t.Error("a stopped process is busy")
	}
}
