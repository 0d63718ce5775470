package load

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"netemd/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble is the time of synctest.
type bubble struct{}

func (bubble) Now() int64 { return time.Now().UnixNano() }

func (b bubble) Sleep(ctx context.Context, until int64) bool {
	select {
	case <-time.After(time.Duration(until - b.Now())):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// collect runs and gives the samples too.
func collect(ctx context.Context, c probe.Caller, r probe.Request) ([]probe.Sample, probe.Load, error) {
	var got []probe.Sample
	l, err := Run(ctx, c, r, Options{Clock: bubble{}}, func(s probe.Sample) { got = append(got, s) })
	return got, l, err
}

// callerFunc is a call made of nothing but time.
type callerFunc func(ctx context.Context, seq int) probe.Sample

func (f callerFunc) Call(ctx context.Context, seq int) probe.Sample { return f(ctx, seq) }

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		c := callerFunc(func(ctx context.Context, seq int) probe.Sample {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != 5*time.Second {
				t.Errorf("call %d has until %v", seq, end)
			}
			time.Sleep(time.Duration(1+seq%3) * 10 * time.Millisecond)
			return probe.Sample{Seq: seq, Class: probe.OK}
		})
		got, l, err := collect(t.Context(), c, probe.Request{Count: 100, Concurrency: 7, Pace: probe.NoPace})
		if err != nil || len(got) != 100 || most.Load() != 7 || l.InFlightMax != 7 || l.Started != 100 || l.Loop != "closed" || l.Asked != nil || l.Seed == 0 {
			t.Errorf("%d samples, %d at a time, %+v, error %v; want 100 and 7", len(got), most.Load(), l, err)
		}
		seen := map[int]bool{}
		for _, s := range got {
			if seen[s.Seq] = true; s.DueNS != 0 || s.Warmup {
				t.Errorf("sample %+v, want one of a closed loop", s)
			}
		}
		if len(seen) != 100 || !seen[0] || !seen[99] {
			t.Errorf("%d different numbers, want 0..99", len(seen))
		}
	})
}

// TestRunStops: what was measured is kept, what was cut off is not.
func TestRunStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(250*time.Millisecond, func() { stop(gone) })
		c := callerFunc(func(ctx context.Context, seq int) probe.Sample {
			select {
			case <-ctx.Done():
				return probe.Sample{Seq: seq, Class: probe.Other}
			case <-time.After(100 * time.Millisecond):
				return probe.Sample{Seq: seq, Class: probe.Refused}
			}
		})
		at := time.Now()
		got, l, err := collect(ctx, c, probe.Request{Count: 1000, Concurrency: 2, Pace: probe.NoPace})
		if !errors.Is(err, gone) || len(got) != 4 || l.CutOff != 2 || l.Started != 6 {
			t.Errorf("%d samples, %+v, error %v; want 4, 2 cut off, and %v", len(got), l, err, gone)
		}
		if d := time.Since(at); d != 250*time.Millisecond {
			t.Errorf("stopped after %v", d)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	if _, err := Run(t.Context(), nil, probe.Request{Count: -1}, Options{}, nil); !errors.Is(err, probe.ErrRequest) {
		t.Errorf("error %v, want ErrRequest", err)
	}
}

// starts records when each call began.
type starts struct {
	mu sync.Mutex
	at []time.Time
}

func (s *starts) Call(_ context.Context, seq int) probe.Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	return probe.Sample{Seq: seq, Class: probe.OK}
}

func TestPaceSpacesTheStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s starts
		r := probe.Request{Target: "pg", Count: 20, Concurrency: 4, Pace: 50 * time.Millisecond}
		if _, _, err := collect(t.Context(), &s, r); err != nil {
			t.Fatal(err)
		}
		for i := range s.at[1:] {
			if gap := s.at[i+1].Sub(s.at[i]); gap != 50*time.Millisecond {
				t.Errorf("calls %d and %d start %v apart, want 50ms", i, i+1, gap)
			}
		}
		began := time.Now()
		r.Pace = probe.NoPace
		if _, _, err := collect(t.Context(), &s, r); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("without a pace 20 calls that take no time took %v", took)
		}
	})
}
