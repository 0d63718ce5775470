package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roleVariable makes the test binary a netemctl that runs a command, or that command.
const roleVariable = "NETEMD_TEST_CLI_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "netemctl":
		if err := os.Setenv(roleVariable, "command"); err != nil {
			os.Exit(99)
		}
		code, err := RunCommand(context.Background(), Command{Argv: os.Args[:1], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
		if err != nil {
			code = 99
		}
		os.Exit(code)
	case "command":
		count()
	default:
		os.Exit(m.Run())
	}
}

// count says how many signals it hears within a second of the first; READY says that it
// listens. A shell would take two that come close together for one.
func count() {
	heard := make(chan os.Signal, 100)
	signal.Notify(heard, forwarded...)
	fmt.Println("READY")
	<-heard
	time.Sleep(time.Second)
	fmt.Println("HEARD", 1+len(heard))
}

// TestSignalsOnce: a command hears each signal once, whether a terminal sent it to the
// whole group or somebody to netemctl alone.
func TestSignalsOnce(t *testing.T) {
	for _, c := range []struct {
		name string
		send func(t *testing.T, keyboard io.Writer, p *os.Process)
	}{
		{"ctrl-C", func(t *testing.T, keyboard io.Writer, _ *os.Process) {
			if _, err := keyboard.Write([]byte{3}); err != nil {
				t.Error(err)
			}
		}},
		{"TERM", func(t *testing.T, _ io.Writer, p *os.Process) { send(t, p, unix.SIGTERM) }},
		{"USR1", func(t *testing.T, _ io.Writer, p *os.Process) { send(t, p, unix.SIGUSR1) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			keyboard, terminal := pty(t)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), roleVariable+"=netemctl")
			cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = cmd.Process.Kill() })
			if err := terminal.Close(); err != nil {
				t.Fatal(err)
			}
			shown := make(chan string)
			go func() { // reading ends with an error when the last process has closed the terminal
				var all bytes.Buffer
				b := make([]byte, 1024)
				told := false
				for {
					n, err := keyboard.Read(b)
					all.Write(b[:n])
					if !told && strings.Contains(all.String(), "READY") {
						told = true
						shown <- ""
					}
					if err != nil {
						shown <- all.String()
						return
					}
				}
			}()
			limit := time.After(time.Minute)
			select {
			case early := <-shown:
				if early != "" {
					t.Fatalf("shown %q", early)
				}
			case <-limit:
				t.Fatal("the command did not start")
			}
			c.send(t, keyboard, cmd.Process)
			select {
			case all := <-shown:
				if !strings.Contains(all, "HEARD 1\r") {
					t.Errorf("shown %q", all)
				}
			case <-limit:
				t.Fatal("the command did not end")
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

func send(t *testing.T, p *os.Process, s unix.Signal) {
	t.Helper()
	if err := p.Signal(s); err != nil {
		t.Error(err)
	}
}

// TestInterruptWithoutTerminal: what is sent to netemctl alone goes on to the command.
func TestInterruptWithoutTerminal(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"=netemctl")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, len("READY\n"))
	if _, err := io.ReadFull(out, ready); err != nil {
		t.Fatal(err)
	}
	send(t, cmd.Process, unix.SIGINT)
	rest, err := io.ReadAll(out)
	if err != nil || string(rest) != "HEARD 1\n" {
		t.Errorf("told %q, error %v", rest, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// pty makes a terminal and the keyboard and screen of it.
func pty(t *testing.T) (keyboard, terminal *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	if err := unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(keyboard.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return keyboard, terminal
}
