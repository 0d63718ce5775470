package stream

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"netemd/internal/child"
)

func TestMain(m *testing.M) {
	child.Run()
	goleak.VerifyTestMain(m)
}

// process is a proxy child with its own pipe as lifeline.
type process struct {
	cmd      *exec.Cmd
	lifeline io.Closer
	socket   string
	address  string
	clients  string // of the API for clients, where it is served
}

// startProxy runs the real child in front of upstream and waits for its API.
func startProxy(tb testing.TB, upstream string, more ...string) *process {
	tb.Helper()
	p := &process{socket: filepath.Join(tb.TempDir(), "api"), address: freeAddress(tb)}
	p.cmd = exec.Command("/proc/self/exe", child.Args(ChildName,
		append([]string{"--api", p.socket, "--listen", p.address, "--upstream", upstream, "--name", "pg"}, more...)...)...)
	p.cmd.Stderr = os.Stderr
	pipe, err := p.cmd.StdinPipe()
	if err != nil {
		tb.Fatal(err)
	}
	p.lifeline = pipe
	if err := p.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if err := p.cmd.Wait(); err != nil {
			tb.Errorf("proxy ended with %v", err)
		}
		if _, err := os.Lstat(p.socket); err == nil {
			tb.Error("the socket stayed behind")
		}
	})
	eventually(tb, 10*time.Second, func() error {
		_, err := New(Config{}).Read(context.Background(), p.socket)
		return err
	})
	return p
}

// eventually fails the test when f still has an error after limit.
func eventually(tb testing.TB, limit time.Duration, f func() error) {
	tb.Helper()
	end := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %v", limit, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// freeAddress is one of its own each time: a port alone could be another test's by the time
// that it is listened on.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	n := addresses.Add(1)
	l, err := net.Listen("tcp", fmt.Sprintf("127.77.%d.%d:0", n/250, n%250+1))
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// upstream serves each connection with serve and returns its address.
func upstream(tb testing.TB, serve func(net.Conn)) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan struct{})
	live := make(chan struct{}, 1000)
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			live <- struct{}{}
			go func() {
				defer func() { <-live }()
				defer c.Close()
				serve(c)
			}()
		}
	}()
	tb.Cleanup(func() {
		l.Close()
		<-ended
		eventually(tb, 5*time.Second, func() error {
			if n := len(live); n > 0 {
				return fmt.Errorf("%d connections to the upstream are open", n)
			}
			return nil
		})
	})
	return l.Addr().String()
}

var addresses atomic.Int64

func echo(c net.Conn) { _, _ = io.Copy(c, c) }

// dial connects to the proxy with a deadline for everything.
func dial(tb testing.TB, address string) net.Conn {
	tb.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		tb.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	tb.Cleanup(func() { c.Close() })
	return c
}

// roundTrip sends message and reads as much back.
func roundTrip(c net.Conn, message string) (string, error) {
	if _, err := io.WriteString(c, message); err != nil {
		return "", err
	}
	b := make([]byte, len(message))
	n, err := io.ReadFull(c, b)
	return string(b[:n]), err
}
