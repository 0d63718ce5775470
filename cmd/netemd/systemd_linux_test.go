package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/client"
	"netemd/internal/testenv"
)

// agentEnv makes the test program netemd, with its arguments.
const agentEnv = "NETEMD_TEST_NETEMD"

// told is a state that systemd was told, and when.
type told struct {
	state string
	at    time.Time
}

// A real agent tells systemd that it is ready when it answers, beats at half the time of the
// watchdog, and says that it stops before it does; while it is stopped no beat comes.
func TestNotifyOfAnAgent(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	path, state := filepath.Join(dir, "notify"), filepath.Join(dir, "s")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	states := make(chan told, 1024)
	go func() {
		defer close(states)
		for b := make([]byte, 256); ; {
			n, err := l.Read(b)
			if err != nil {
				return
			}
			states <- told{string(b[:n]), time.Now()}
		}
	}()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), agentEnv+"=--state-dir "+state, "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=1000000")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		_ = cmd.Process.Kill()
		_ = l.Close()
	}()
	next := func(want string) told {
		t.Helper()
		select {
		case s := <-states:
			if s.state != want {
				t.Fatalf("it said %q, want %q", s.state, want)
			}
			return s
		case <-time.After(time.Minute):
			t.Fatalf("it never said %q", want)
		}
		return told{}
	}
	next("READY=1")
	c, err := client.Open(client.Endpoint{Socket: filepath.Join(state, "netemd.sock")})
	if err == nil {
		_, err = c.List(t.Context())
	}
	if err != nil {
		t.Fatalf("when it said that it is ready: %v", err)
	}
	defer func() { _ = c.Close() }()

	// On a machine that stands still a beat is late, and the next one in time: what counts is
	// that they come, and that no more come than half the time of the watchdog allows.
	const beats = 4
	first := next("WATCHDOG=1")
	last := first
	for range beats {
		last = next("WATCHDOG=1")
	}
	if took, least := last.at.Sub(first.at), (beats-1)*500*time.Millisecond; took < least {
		t.Errorf("%d beats came in %v, want them 500ms apart", beats, took)
	}

	if err := cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // what it sent before
	for len(states) > 0 {
		<-states
	}
	time.Sleep(1200 * time.Millisecond)
	if n := len(states); n > 0 {
		t.Errorf("%d beats of an agent that is stopped", n)
	}
	if err := cmd.Process.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	next("WATCHDOG=1")
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var rest []string
	var stopping time.Time
	for stopping.IsZero() {
		select {
		case s := <-states:
			rest = append(rest, s.state)
			if s.state == "STOPPING=1" {
				stopping = s.at
			}
		case <-time.After(time.Minute):
			t.Fatalf("it never said that it stops: %q", rest)
		}
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	_ = l.Close()
	for s := range states {
		rest = append(rest, s.state)
	}
	if i := slices.Index(rest, "STOPPING=1"); i != len(rest)-1 {
		t.Errorf("after it said that it stops: %q", rest[i+1:])
	}
}
