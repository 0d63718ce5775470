package service

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	sigTerm = unix.SIGTERM
	sigKill = unix.SIGKILL
)

// Wait returns when the process has ended, whoever its parent is, or ctx has; the
// error is ctx's cause then. It takes no thread meanwhile.
func (p Process) Wait(ctx context.Context) error {
	fd, ok, err := p.open()
	if !ok {
		return err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("process %d: pidfd: %w", p.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer func() { _ = f.Close() }()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer stop()
	// A pidfd is readable from the end of its process on (pidfd_open(2)).
	err = raw.Read(func(fd uintptr) bool { return ended(int(fd), 0) })
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}
