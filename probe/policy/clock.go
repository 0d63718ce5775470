package policy

import (
	"context"
	"time"

	"netemd/probe"
)

// Clock is the time that policies wait by.
type Clock interface {
	// Now is CLOCK_MONOTONIC in ns, as samples have it.
	Now() int64
	// AfterFunc calls f once d has passed, on a goroutine of the clock's; stop reports
	// whether it will not be called any more.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
	// WithTimeout is context.WithTimeout by this clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// Real is the kernel's clock.
type Real struct{}

// Now is probe.Now.
func (Real) Now() int64 { return probe.Now() }

// AfterFunc is time.AfterFunc.
func (Real) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

// WithTimeout is context.WithTimeout.
func (Real) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// timer closes the channel once d has passed. stop ends it before, and is called in the end.
func timer(c Clock, d time.Duration) (fired <-chan struct{}, stop func()) {
	ch := make(chan struct{})
	end := c.AfterFunc(d, func() { close(ch) })
	return ch, func() { end() }
}

// rest waits, and reports whether ctx has not ended.
func rest(ctx context.Context, c Clock, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	fired, stop := timer(c, d)
	defer stop()
	select {
	case <-fired:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
