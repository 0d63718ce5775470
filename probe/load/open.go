package load

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"netemd/probe"
)

// job is a call that is due.
type job struct {
	seq    int
	due    int64
	warmup bool
}

// open runs an open loop, and reports whether it came to its own end.
func (l *run) open(ctx context.Context) bool {
	l.places = places{most: int64(l.request.Open.MaxInFlight), freed: make(chan struct{}, 1)}
	way := l.work
	if l.options.Starter != nil {
		way = l.start
	}
	begin, end := way(ctx)
	ended := make(chan bool, 1)
	// a goroutine of its own: its thread is not used again
	go func() {
		if l.precise {
			pacer{}.begin()
		}
		ended <- l.pace(ctx, begin)
	}()
	all := <-ended
	end()
	return all
}

// pace begins the calls when they are due. What is due while MaxInFlight others are under
// way waits for a place, and with it the schedule, which forgets nothing: each call
// keeps the time at which it was due. What still waits at the end of the run is not made.
func (l *run) pace(ctx context.Context, begin func(job)) bool {
	length := l.request.Length()
	over := int64(math.MaxInt64)
	if length > 0 {
		over = l.began + int64(length)
	}
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
		if l.notStarted == 0 {
			if !l.clock.Sleep(ctx, j.due) {
				return false
			}
			if !l.places.take(ctx, l.clock, over) {
				if ctx.Err() != nil {
					l.due, l.span = l.due+1, offset
					return false
				}
				l.notStarted++
			}
		} else {
			l.notStarted++ // the run is over: what was due until then is counted only
		}
		if l.due, l.span = l.due+1, offset; l.notStarted == 0 {
			begin(j)
		}
	}
}

// work gives calls to goroutines. They are made when all are busy, and kept: one that has
// its stack already starts sooner. The jobs have a buffer, since one that is idle by the
// count may not have got to its next job yet.
func (l *run) work(ctx context.Context) (begin func(job), end func()) {
	jobs := make(chan job, l.places.most)
	workers := int64(0)
	work := func(j job) {
		for ok := true; ok; j, ok = <-jobs {
			if ctx.Err() == nil {
				l.call(ctx, j.seq, j.due, j.warmup)
			}
			l.places.leave()
		}
	}
	begin = func(j job) {
		if l.places.taken.Load() > workers {
			workers++
			l.calls.Go(func() { work(j) })
			return
		}
		jobs <- j // there is room for all places
	}
	return begin, func() {
		close(jobs)
		l.calls.Wait()
	}
}

// places are those of the calls under way.
type places struct {
	most    int64
	taken   atomic.Int64
	wanting atomic.Bool
	freed   chan struct{}
}

// take takes a place for a call that is due now; false when there is none before the run
// is over, or ctx ends. One goroutine takes.
func (p *places) take(ctx context.Context, c Clock, over int64) bool {
	if p.taken.Add(1) <= p.most {
		return true
	}
	p.taken.Add(-1)
	p.wanting.Store(true)
	defer p.wanting.Store(false)
	var end <-chan time.Time
	if over != math.MaxInt64 {
		t := time.NewTimer(time.Duration(over - c.Now()))
		defer t.Stop()
		end = t.C
	}
	for p.taken.Load() >= p.most {
		select {
		case <-p.freed:
		case <-end:
			return false
		case <-ctx.Done():
			return false
		}
	}
	if c.Now() >= over {
		return false
	}
	p.taken.Add(1)
	return true
}

func (p *places) leave() {
	p.taken.Add(-1)
	if p.wanting.Load() {
		select {
		case p.freed <- struct{}{}:
		default: // it knows
		}
	}
}

// start begins calls at once, on the thread of the schedule.
func (l *run) start(ctx context.Context) (begin func(job), end func()) {
	o := outbox{run: l, filled: make(chan struct{}, 1), done: make(chan struct{})}
	o.waiting.Go(o.deliver)
	stop := context.AfterFunc(ctx, l.options.Starter.CutOff)
	budget := int64(l.request.Timeout)
	ended := func(s probe.Sample) { o.take(s, s.Class != probe.OK && ctx.Err() != nil) }
	begin = func(j job) {
		now := l.clock.Now()
		l.begun(now)
		l.options.Starter.Start(probe.Sample{Seq: j.seq, DueNS: j.due, Warmup: j.warmup}, now+budget, ended)
	}
	return begin, func() {
		l.stuck = !l.places.empty(budget + int64(patience))
		stop()
		close(o.done)
		o.waiting.Wait()
	}
}
