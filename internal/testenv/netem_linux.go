package testenv

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"netemd/qdisc"
)

// Netem skips the test where a real try of sch_netem in a scratch namespace
// fails, or fails it when NETEMD_TEST_NETEM is set. It needs root, as Root does.
func Netem(t testing.TB) {
	t.Helper()
	Root(t)
	loopback := qdisc.Device{Name: "lo", Index: 1}
	c, err := qdisc.Dial(qdisc.Config{NetNS: Namespace(t), Namespace: "scratch"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	err = c.AddRoot(loopback, qdisc.Netem{})
	switch {
	case err == nil:
	case errors.Is(err, errors.ErrUnsupported) && os.Getenv("NETEMD_TEST_NETEM") == "":
		t.Skipf("needs a kernel with sch_netem: %v", err)
	default:
		t.Fatalf("no sch_netem: %v", err)
	}
}

// Namespace makes a network namespace without a name and returns a descriptor of
// it. Both end with the test. It needs root, as Root does.
func Namespace(t testing.TB) int {
	t.Helper()
	Root(t)
	fd, err := scratch()
	if err != nil {
		t.Fatalf("scratch namespace: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// scratch works on a thread that ends with it. That is never the main thread,
// whose end would leave the process without its first one.
func scratch() (fd int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread() // held here while another takes it on
			fd, err = scratch()
			return
		}
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("unshare: %w", err)
			return
		}
		fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}()
	<-done
	return fd, err
}
