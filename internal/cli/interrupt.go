package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal syscall.Signal }

func (i interrupted) Error() string { return i.signal.String() + " signal received" }

// interrupts are the signals at which what is in progress is undone.
var interrupts = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// UntilInterrupted returns a context that a signal ends which asks the program to end: ctrl-C,
// SIGTERM or SIGHUP. The exit code tells which.
func UntilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, interrupts...)
	go func() {
		select {
		case s := <-signals:
			if s, ok := s.(syscall.Signal); ok {
				cancel(interrupted{s})
			}
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// interruptCode is the exit code of a command that was interrupted, as shells have it: 128 and
// the signal's number.
func interruptCode(ctx context.Context) int {
	if i, ok := errors.AsType[interrupted](context.Cause(ctx)); ok {
		return 128 + int(i.signal)
	}
	return exitInterrupted
}
