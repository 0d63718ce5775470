package namespaces

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func current(t testing.TB) string {
	t.Helper()
	s, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Error(err)
	}
	return s
}

func threads(t testing.TB) int {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(tasks)
}

// TestDoParallel is case C40: 200 calls at a time into two namespaces, each held on
// its thread, then 2000 goroutines none of which may be elsewhere than before, and no
// heap of threads left.
func TestDoParallel(t *testing.T) {
	names := [2]string{create(t), create(t)}
	home := current(t)
	var inside [2]string
	for i, name := range names {
		if err := Do(t.Context(), name, func() error { inside[i] = current(t); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if inside[0] == inside[1] || inside[0] == home {
		t.Fatalf("home %s, inside %v", home, inside)
	}
	before := threads(t)

	const calls = 200
	var wrong, failed atomic.Int32
	var calling, all sync.WaitGroup
	calling.Add(calls)
	for i := range calls {
		all.Go(func() {
			err := Do(context.Background(), names[i%2], func() error {
				calling.Done()
				calling.Wait() // all are inside at a time
				ts := unix.NsecToTimespec(int64(time.Millisecond))
				_ = unix.Nanosleep(&ts, nil) // blocks the thread
				if current(t) != inside[i%2] {
					wrong.Add(1)
				}
				return nil
			})
			if err != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	if wrong.Load() != 0 || failed.Load() != 0 {
		t.Errorf("%d of %d in the wrong namespace, %d failed", wrong.Load(), calls, failed.Load())
	}

	for range 2000 {
		all.Go(func() {
			if current(t) != home {
				wrong.Add(1)
			}
			runtime.Gosched()
		})
	}
	all.Wait()
	if n := wrong.Load(); n != 0 {
		t.Errorf("%d of 2000 goroutines are outside the own namespace", n)
	}
	// The runtime's own threads that stood in while ours were blocked stay idle.
	limit := before + 5
	deadline := time.Now().Add(5 * time.Second)
	for threads(t) > limit && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	if after := threads(t); after > limit {
		t.Errorf("%d threads before, %d after", before, after)
	}
}

func TestDoSocketStaysInside(t *testing.T) {
	a, b := create(t), create(t)
	ends := [2]VethEnd{
		{Namespace: a, Name: "v0", Addresses: prefixes(t, "10.78.250.1/24", "fd00:78::1/64")},
		{Namespace: b, Name: "v0", Addresses: prefixes(t, "10.78.250.2/24", "fd00:78::2/64")},
	}
	if err := CreateVeth(ends[0], ends[1]); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"10.78.250.2:0", "[fd00:78::2]:0"} {
		var l net.Listener
		err := Do(t.Context(), b, func() (err error) {
			l, err = net.Listen("tcp", address)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var c net.Conn
		err = Do(t.Context(), a, func() (err error) {
			c, err = (&net.Dialer{Timeout: 2 * time.Second}).DialContext(t.Context(), "tcp", l.Addr().String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		peer, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := peer.RemoteAddr().String(), c.LocalAddr().String(); got != want {
			t.Errorf("the peer is %s, want %s", got, want)
		}
		_, _, _ = c.Close(), peer.Close(), l.Close()
	}
}

func TestDoEnds(t *testing.T) {
	name := create(t)
	home := current(t)
	want := errors.New("no")
	if err := Do(t.Context(), name, func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v, want f's own error", err)
	}
	if err := Do(t.Context(), name, func() error { runtime.Goexit(); return nil }); err == nil || !strings.Contains(err.Error(), "Goexit") {
		t.Errorf("Goexit: %v", err)
	}
	func() {
		defer func() {
			if got := recover(); got != "boom" {
				t.Errorf("recovered %v", got)
			}
		}()
		_ = Do(t.Context(), name, func() error { panic("boom") })
	}()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(want)
	if err := Do(ctx, name, func() error { t.Error("ran"); return nil }); !errors.Is(err, want) {
		t.Errorf("ended context: %v, want its cause", err)
	}
	if now := current(t); now != home {
		t.Errorf("the caller is in %s, was in %s", now, home)
	}
}

// TestDoKeepsOffMainThread runs many calls, and what f sees is never the main thread.
func TestDoKeepsOffMainThread(t *testing.T) {
	name := create(t)
	for range 200 {
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				_ = Do(t.Context(), name, func() error {
					if unix.Gettid() == os.Getpid() {
						t.Error("on the main thread")
					}
					return nil
				})
			})
		}
		all.Wait()
	}
}

func TestStart(t *testing.T) {
	name := create(t)
	var inside string
	if err := Do(t.Context(), name, func() error { inside = current(t); return nil }); err != nil {
		t.Fatal(err)
	}
	home := current(t)
	var out strings.Builder
	cmd := exec.Command("readlink", "/proc/self/ns/net")
	cmd.Stdout = &out
	if err := Start(name, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got != inside {
		t.Errorf("the process was in %s, want %s (own: %s)", got, inside, home)
	}
	if err := Start(name, &exec.Cmd{SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}); err == nil {
		t.Error("Pdeathsig was not refused")
	}
}

func TestPIDs(t *testing.T) {
	name := create(t)
	if pids, err := PIDs(name); err != nil || len(pids) != 0 {
		t.Errorf("empty namespace has %v, %v", pids, err)
	}
	cmd := exec.Command("sleep", "60")
	if err := Start(name, cmd); err != nil {
		t.Fatal(err)
	}
	pids, err := PIDs(name)
	if err != nil || len(pids) != 1 || pids[0] != cmd.Process.Pid {
		t.Errorf("got %v, %v, want [%d]", pids, err, cmd.Process.Pid)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if pids, err := PIDs(name); err != nil || len(pids) != 0 {
		t.Errorf("after the end: %v, %v", pids, err)
	}
}

func BenchmarkDo(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	const name = "nt-ns-bench"
	if err := Create(name); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = Delete(name) })
	for b.Loop() {
		if err := Do(b.Context(), name, func() error { return nil }); err != nil {
			b.Fatal(err)
		}
	}
}
