package namespaces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// keepThreads is how many calls at a time give their thread back to the runtime;
// the threads of further ones end with their call, since the runtime itself never
// ends an idle thread.
const keepThreads = 4

var running atomic.Int32

// Do runs f inside the namespace name, on a thread of its own, and returns f's
// error. The empty name is the process's own namespace. See Namespace.Do.
func Do(ctx context.Context, name string, f func() error) error {
	n, err := Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	return n.Do(ctx, f)
}

// Do runs f on a locked thread that has entered the namespace, and waits for it. The
// thread is never the main one, and it ends when it cannot return to the process's
// own namespace. A ctx that has ended keeps f from starting; f itself must watch what
// it needs.
//
// Only f's own goroutine is inside: one that f starts is not, nor is what a library
// does on goroutines of its own, such as resolving a name or dialing one that has two
// addresses (dial an address instead). Sockets that f opens stay in the namespace and
// may be used anywhere later. A panic in f is raised again in the caller.
func (n *Namespace) Do(ctx context.Context, f func() error) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("namespace enter: %s: %w", label(n.name), err)
	}
	return onThread(leave, func() error {
		if err := n.enter(); err != nil {
			return err
		}
		return f()
	})
}

// enter takes the calling thread there.
func (n *Namespace) enter() error {
	if err := unix.Setns(n.FD(), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("namespace enter: %s: %w", label(n.name), err)
	}
	return nil
}

// Start starts cmd as cmd.Start does, inside the namespace name from its first
// instruction on. See Namespace.Start.
func Start(name string, cmd *exec.Cmd) error {
	n, err := Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	return n.Start(cmd)
}

// Start starts cmd as cmd.Start does, inside the namespace. The process keeps the
// caller's mount namespace, so /sys shows it the caller's devices. Pdeathsig is
// refused: it would fire when the thread ends that started the process, not when
// this process ends.
func (n *Namespace) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Pdeathsig != 0 {
		return errors.New("namespace start: Pdeathsig would fire when a thread ends")
	}
	return n.Do(context.Background(), cmd.Start)
}

// mainThread is the number of the first thread, and of the process.
var mainThread = os.Getpid()

// onThread runs f on a locked thread, not the main one, waits for it and has leave take
// the thread back to the process's namespace; when it cannot, or is nil, the thread ends.
func onThread(leave func() error, f func() error) error {
	var (
		err      error
		panicked any
		returned bool
	)
	done := make(chan struct{})
	var body func()
	body = func() {
		runtime.LockOSThread()
		if unix.Gettid() == mainThread {
			// The main thread's end would leave a zombie leader, and its namespace is
			// what /proc/self/ns/net names: hold it here until another has finished.
			defer runtime.UnlockOSThread()
			go body()
			<-done
			return
		}
		defer close(done)
		many := running.Add(1) > keepThreads
		defer running.Add(-1)
		defer func() { panicked = recover() }()
		err = f()
		returned = true
		if leave != nil && !many && leave() == nil {
			runtime.UnlockOSThread()
		}
	}
	go body()
	<-done
	if panicked != nil {
		panic(panicked)
	}
	if !returned {
		return errors.New("namespace: the function ended its goroutine (runtime.Goexit)")
	}
	return err
}

// leave returns the calling thread to the main thread's namespace, which no one
// changes.
func leave() error {
	fd, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Setns(fd, unix.CLONE_NEWNET)
}
