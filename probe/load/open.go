package load

import "context"

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

// pace gives the calls away when they are due. Workers are made when none is idle, and
// kept: a goroutine that has its stack already starts sooner. A job goes into a buffer,
// since a worker that has said it is idle may not have got to its next job yet, and the
// schedule waits for nobody.
func (l *run) pace(ctx context.Context) bool {
	most := l.request.Open.MaxInFlight
	jobs, idle := make(chan job, most), make(chan struct{}, most)
	defer close(jobs)
	work := func(j job) {
		for ok := true; ok; j, ok = <-jobs {
			l.call(ctx, j.seq, j.due, j.warmup)
			idle <- struct{}{}
		}
	}
	length := l.request.Length()
	times := newSchedule(*l.request.Open, length, l.request.Seed)
	workers := 0
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
		select {
		case <-idle:
			jobs <- j
			continue
		default:
		}
		if workers < most {
			workers++
			l.calls.Go(func() { work(j) })
			continue
		}
		select {
		case <-idle:
			jobs <- j
		case <-ctx.Done():
			return false
		}
	}
}
