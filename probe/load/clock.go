package load

import (
	"context"
	"time"

	"netemd/probe"
)

// Clock is what a run's schedule is kept by.
type Clock interface {
	// Now is in ns, and agrees with the samples' StartNS.
	Now() int64
	// Sleep waits until the clock says so, and reports false as soon as ctx has ended. The
	// loop calls it from one goroutine at a time.
	Sleep(ctx context.Context, until int64) bool
}

// timers is the clock of samples with Go's timers, which are late by 1 ms at times.
type timers struct{}

func (timers) Now() int64 { return probe.Now() }

func (timers) Sleep(ctx context.Context, until int64) bool {
	d := time.Duration(until - probe.Now())
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
