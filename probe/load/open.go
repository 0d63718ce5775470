package load

import (
	"context"
	"sync/atomic"
)

// job is a call that is due.
type job struct {
	seq    int
	due    int64
	warmup bool
}

// open runs an open loop, and reports whether it came to its own end.
func (l *run) open(ctx context.Context) bool {
	ended := make(chan bool, 1)
	// a goroutine of its own: its thread is not used again
	go func() {
		if l.precise {
			pacer{}.begin()
		}
		ended <- l.pace(ctx)
	}()
	all := <-ended
	l.calls.Wait()
	return all
}

// backlog is how many calls may be due and wait for MaxInFlight beyond the schedule's
// own place.
const backlog = 1 << 16

// pace gives the calls away when they are due. Workers are made when all are busy, and
// kept: a goroutine that has its stack already starts sooner. The jobs have a buffer, so
// that the schedule waits for nobody: a worker that is idle by the count may not have got
// to its next job yet, and where MaxInFlight are busy the first that has done takes the
// next call by itself.
func (l *run) pace(ctx context.Context) bool {
	var (
		most    = l.request.Open.MaxInFlight
		jobs    = make(chan job, backlog)
		given   atomic.Int64 // and not done
		workers = 0
	)
	defer close(jobs)
	work := func(j job) {
		for ok := true; ok; j, ok = <-jobs {
			if ctx.Err() == nil {
				l.call(ctx, j.seq, j.due, j.warmup)
			}
			given.Add(-1)
		}
	}
	length := l.request.Length()
	times := newSchedule(*l.request.Open, length, l.request.Seed)
	for seq := 0; ; seq++ {
		if l.request.Count > 0 && l.counted == l.request.Count {
			return true
		}
		offset, ok := times.next()
		if !ok || length > 0 && offset >= length {
			return true
		}
		j := job{seq: seq, due: l.began + int64(offset)}
		if j.warmup = l.isWarmup(j.due); !j.warmup {
			l.counted++
		}
		if !l.clock.Sleep(ctx, j.due) {
			return false
		}
		l.due, l.span = l.due+1, offset
		if n := given.Add(1); n > int64(workers) && workers < most {
			workers++
			l.calls.Go(func() { work(j) })
			continue
		}
		select {
		case jobs <- j:
		case <-ctx.Done():
			return false
		}
	}
}
