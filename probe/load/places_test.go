package load

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"netemd/probe"
)

// lasting is a Starter whose calls last a time, or until they are cut off.
type lasting struct {
	takes time.Duration
	mu    sync.Mutex
	under map[int]func(probe.Class)
}

func (c *lasting) Start(s probe.Sample, until int64, done func(probe.Sample)) {
	s.StartNS = bubble{}.Now()
	takes, class := c.takes, probe.OK
	if left := time.Duration(until - s.StartNS); takes > left {
		takes, class = left, probe.Timeout
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var once sync.Once
	end := func(class probe.Class) {
		once.Do(func() {
			c.mu.Lock()
			delete(c.under, s.Seq)
			c.mu.Unlock()
			s.Class, s.EndNS = class, bubble{}.Now()
			done(s)
		})
	}
	if c.under == nil {
		c.under = map[int]func(probe.Class){}
	}
	c.under[s.Seq] = end
	time.AfterFunc(takes, func() { end(class) })
}

func (c *lasting) CutOff() {
	c.mu.Lock()
	under := c.under
	c.under = nil
	c.mu.Unlock()
	for _, end := range under {
		end(probe.Other)
	}
}

// both runs an open loop by goroutines and by a Starter.
func both(t *testing.T, f func(t *testing.T, run func(ctx context.Context, takes time.Duration, r probe.Request) ([]probe.Sample, probe.Load, error))) {
	t.Helper()
	for _, started := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f(t, func(ctx context.Context, takes time.Duration, r probe.Request) ([]probe.Sample, probe.Load, error) {
				var got []probe.Sample
				o := Options{Clock: bubble{}}
				if started {
					o.Starter = &lasting{takes: takes}
				}
				waits := callerFunc(func(ctx context.Context, seq int) probe.Sample {
					s := probe.Sample{Seq: seq, StartNS: bubble{}.Now(), Class: probe.OK}
					select {
					case <-time.After(takes):
					case <-ctx.Done():
						s.Class = probe.Timeout
					}
					s.EndNS = bubble{}.Now()
					return s
				})
				l, err := Run(ctx, waits, r, o, func(s probe.Sample) { got = append(got, s) })
				return got, l, err
			})
		})
	}
}

// TestNotStarted: a server takes 1 s, one call may be under way, ten are due a second for
// 3.5 s. Calls begin at 0, 1, 2 and 3 s; what is due until the end and could not begin
// is counted and not made.
func TestNotStarted(t *testing.T) {
	both(t, func(t *testing.T, run func(context.Context, time.Duration, probe.Request) ([]probe.Sample, probe.Load, error)) {
		r := probe.Request{Duration: 3500 * time.Millisecond, Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 10, To: 10}}, MaxInFlight: 1}}
		began := bubble{}.Now()
		got, l, err := run(t.Context(), time.Second, r)
		if err != nil || len(got) != 4 || l.Started != 4 || l.NotStarted != 31 || l.InFlightMax != 1 || l.ElapsedMS != 4000 || l.Asked == nil || *l.Asked != 10 {
			t.Fatalf("%d samples, %+v, %v; want 4 made and 31 not", len(got), l, err)
		}
		for i, s := range got {
			if s.DueNS != began+int64(i)*int64(100*time.Millisecond) || s.StartNS != began+int64(i)*int64(time.Second) || s.Seq != i {
				t.Errorf("sample %+v, want one that was due at %d00 ms and began at %d s", s, i, i)
			}
		}
		r.Count, r.Duration = 3, 2500*time.Millisecond // a count bounds what was due, too
		if _, l, err = run(t.Context(), 2*time.Second, r); err != nil || l.Started != 2 || l.NotStarted != 1 {
			t.Errorf("%+v, %v; want 2 made and 1 not", l, err)
		}
		r.Count, r.Duration = 3, 0 // without an end all are made
		if _, l, err = run(t.Context(), 2*time.Second, r); err != nil || l.Started != 3 || l.NotStarted != 0 {
			t.Errorf("%+v, %v; want 3 made", l, err)
		}
	})
}

// TestStarted: due times, warm-up marks, budgets and an early end are the same for both
// ways.
func TestStarted(t *testing.T) {
	both(t, func(t *testing.T, run func(context.Context, time.Duration, probe.Request) ([]probe.Sample, probe.Load, error)) {
		r := probe.Request{Duration: time.Second, Warmup: 300 * time.Millisecond, Timeout: 50 * time.Millisecond, Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 10, To: 10}}}}
		began := bubble{}.Now()
		got, l, err := run(t.Context(), time.Minute, r)
		if err != nil || len(got) != 10 || l.Started != 10 || l.CutOff != 0 {
			t.Fatalf("%d samples, %+v, %v; want 10", len(got), l, err)
		}
		for i, s := range got {
			due := began + int64(i)*int64(100*time.Millisecond)
			if s.DueNS != due || s.StartNS != due || s.Warmup != (i < 3) || s.Class != probe.Timeout || s.Duration() != 50*time.Millisecond {
				t.Errorf("sample %+v, want a timeout due at %d00 ms", s, i)
			}
		}
		gone := errors.New("gone")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(520*time.Millisecond, func() { stop(gone) })
		r.Timeout = time.Second
		got, l, err = run(ctx, 250*time.Millisecond, r) // 0..200 ms ended, 300..500 ms are under way
		if !errors.Is(err, gone) || len(got) != 3 || l.Started != 6 || l.CutOff != 3 {
			t.Errorf("%d samples, %+v, %v; want 3, and 3 cut off", len(got), l, err)
		}
	})
}

// TestSlowListener: who is told of samples and does not come back holds the calls up, and
// nothing is lost.
func TestSlowListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := probe.Request{Count: 3 * undelivered, Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 10_000, To: 10_000}}, MaxInFlight: 10}}
		told, most, s := 0, 0, &lasting{takes: time.Millisecond}
		l, err := Run(t.Context(), nil, r, Options{Clock: bubble{}, Starter: s}, func(x probe.Sample) {
			if told++; told == 1 {
				time.Sleep(time.Minute)
			}
			if x.StartNS-x.DueNS > int64(50*time.Second) {
				most++
			}
		})
		if err != nil || told != r.Count || l.Started != r.Count || most == 0 {
			t.Errorf("%d told, %d of them late, %+v, %v; want all, and some late", told, most, l, err)
		}
	})
}
