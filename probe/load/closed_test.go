package load

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"netemd/probe"
)

// takes is a call that takes so long, on the clock of the bubble.
func takes(d time.Duration) callerFunc {
	return func(_ context.Context, seq int) probe.Sample {
		s := probe.Sample{Seq: seq, StartNS: bubble{}.Now(), Class: probe.OK}
		time.Sleep(d)
		s.EndNS = bubble{}.Now()
		return s
	}
}

// TestClosedEnds is what ends a closed loop, and what the warm-up is.
func TestClosedEnds(t *testing.T) {
	const ms = time.Millisecond
	tests := []struct {
		name         string
		r            probe.Request
		took         time.Duration
		calls, warm  int
		within       time.Duration
		wantAchieved float64
	}{
		{"count", probe.Request{Count: 10, Concurrency: 1, Pace: probe.NoPace}, 10 * ms, 10, 0, 100 * ms, 100},
		{"duration", probe.Request{Duration: time.Second, Concurrency: 1, Pace: probe.NoPace}, 10 * ms, 100, 0, time.Second, 100},
		{"the last call may end after the duration", probe.Request{Duration: time.Second, Concurrency: 1, Pace: probe.NoPace}, 300 * ms, 4, 0, 1200 * ms, 1 / 0.3},
		{"the count comes first", probe.Request{Duration: time.Second, Count: 3, Concurrency: 1, Pace: 100 * ms}, ms, 3, 0, 201 * ms, 10},
		{"the duration comes first", probe.Request{Duration: 250 * ms, Count: 30, Concurrency: 1, Pace: 100 * ms}, ms, 3, 0, 201 * ms, 10},
		{"warm-up of a duration", probe.Request{Duration: time.Second, Warmup: 500 * ms, Concurrency: 1, Pace: 100 * ms}, ms, 10, 5, 901 * ms, 10},
		{"warm-up beside a count", probe.Request{Count: 7, Warmup: 500 * ms, Concurrency: 2, Pace: 100 * ms}, ms, 12, 5, 1101 * ms, 10},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got, l, err := collect(t.Context(), takes(test.took), test.r)
				warm := 0
				for _, s := range got {
					if s.Warmup {
						warm++
					}
				}
				if err != nil || len(got) != test.calls || warm != test.warm || time.Since(began) != test.within {
					t.Errorf("%d calls, %d of the warm-up, in %v, %v; want %d, %d, %v", len(got), warm, time.Since(began), err, test.calls, test.warm, test.within)
				}
				if d := l.Achieved - test.wantAchieved; d < -1e-6 || d > 1e-6 || l.ElapsedMS != float64(test.within)/1e6 {
					t.Errorf("%+v, want %v calls per second", l, test.wantAchieved)
				}
			})
		})
	}
}
