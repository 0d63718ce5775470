package probe

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// callerFunc is a call made of nothing but time.
type callerFunc func(ctx context.Context, seq int) Sample

func (f callerFunc) Call(ctx context.Context, seq int) Sample { return f(ctx, seq) }

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		c := callerFunc(func(ctx context.Context, seq int) Sample {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			defer now.Add(-1)
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != 5*time.Second {
				t.Errorf("call %d has until %v", seq, end)
			}
			time.Sleep(time.Duration(1+seq%3) * 10 * time.Millisecond)
			return Sample{Seq: seq, Class: OK}
		})
		calls := 0
		got, err := Run(t.Context(), c, Request{Count: 100, Concurrency: 7, Pace: NoPace}, func(done, count int, _ Sample) {
			calls++
			if done != calls || count != 100 {
				t.Errorf("report %d of %d, want %d of 100", done, count, calls)
			}
		})
		if err != nil || len(got) != 100 || calls != 100 || most.Load() != 7 {
			t.Errorf("%d samples, %d reports, %d at a time, error %v; want 100, 100, 7", len(got), calls, most.Load(), err)
		}
		for i, s := range got {
			if s.Seq != i {
				t.Fatalf("sample %d has number %d", i, s.Seq)
			}
		}
	})
}

// TestRunStops: what was measured is kept, what was cut off is not.
func TestRunStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		ctx, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(250*time.Millisecond, func() { stop(gone) })
		c := callerFunc(func(ctx context.Context, seq int) Sample {
			select {
			case <-ctx.Done():
				return Sample{Seq: seq, Class: Other}
			case <-time.After(100 * time.Millisecond):
				return Sample{Seq: seq, Class: Refused}
			}
		})
		at := time.Now()
		got, err := Run(ctx, c, Request{Count: 1000, Concurrency: 2, Pace: NoPace}, nil)
		if !errors.Is(err, gone) || len(got) != 4 {
			t.Errorf("%d samples, error %v; want 4 and %v", len(got), err, gone)
		}
		if d := time.Since(at); d != 250*time.Millisecond {
			t.Errorf("stopped after %v", d)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	if _, err := Run(t.Context(), nil, Request{Count: -1}, nil); !errors.Is(err, ErrRequest) {
		t.Errorf("error %v, want ErrRequest", err)
	}
}

// starts records when each call began.
type starts struct {
	mu sync.Mutex
	at []time.Time
}

func (s *starts) Call(_ context.Context, seq int) Sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	return Sample{Seq: seq, Class: OK}
}

func TestPaceSpacesTheStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s starts
		r := Request{Target: "pg", Count: 20, Concurrency: 4, Pace: 50 * time.Millisecond}
		if _, err := Run(t.Context(), &s, r, nil); err != nil {
			t.Fatal(err)
		}
		for i := range s.at[1:] {
			if gap := s.at[i+1].Sub(s.at[i]); gap != 50*time.Millisecond {
				t.Errorf("calls %d and %d start %v apart, want 50ms", i, i+1, gap)
			}
		}
		began := time.Now()
		r.Pace = NoPace
		if _, err := Run(t.Context(), &s, r, nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("without a pace 20 calls that take no time took %v", took)
		}
	})
}
