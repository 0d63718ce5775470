package load

import (
	"context"
	"time"

	"netemd/probe"
)

// closed runs a closed loop, and reports whether it came to its own end.
func (l *run) closed(ctx context.Context) bool {
	var (
		next  int
		start = l.began
		all   = true
		pace  = int64(l.request.Pace)
		end   = l.began + int64(l.request.Duration)
	)
	if l.request.Pace == probe.NoPace {
		pace = 0
	}
	// take gives the next call away, and when it may start.
	take := func() (seq int, at int64, warmup, ok bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		at = max(start, l.clock.Now())
		switch {
		case l.request.Count > 0 && l.counted == l.request.Count, l.request.Duration > 0 && at >= end:
			return 0, 0, false, false
		case ctx.Err() != nil:
			all = false
			return 0, 0, false, false
		}
		if warmup = l.isWarmup(at); !warmup {
			l.counted++
		}
		next++
		start = at + pace
		return next - 1, at, warmup, true
	}
	workers := l.request.Concurrency
	if l.request.Count > 0 && l.request.Warmup == 0 {
		workers = min(workers, l.request.Count)
	}
	for range workers {
		l.calls.Go(func() {
			for seq, at, warmup, ok := take(); ok; seq, at, warmup, ok = take() {
				if !l.rest(ctx, at) {
					l.mu.Lock()
					all = false
					l.mu.Unlock()
					return
				}
				l.call(ctx, seq, 0, warmup)
			}
		})
	}
	l.calls.Wait()
	return all
}

// rest waits on a worker's own timer: the loop's clock has one sleeper only.
func (l *run) rest(ctx context.Context, until int64) bool {
	d := time.Duration(until - l.clock.Now())
	if d <= 0 {
		return true
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
