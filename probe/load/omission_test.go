package load

import (
	"context"
	"math"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"netemd/probe"
)

// stalling is a server that answers after 1 ms, but for a part of its time in which it
// answers nothing; what it was asked meanwhile it answers at once after it.
type stalling struct {
	clock    Clock
	from, to int64
	scale    time.Duration // what a millisecond is
	// one connection answers one at a time; nil: as many as ask. A mutex would stop the
	// time of synctest.
	one chan struct{}
}

func (c *stalling) Call(_ context.Context, seq int) probe.Sample {
	s := probe.Sample{Seq: seq, StartNS: c.clock.Now(), Class: probe.OK}
	if c.one != nil {
		c.one <- struct{}{}
		defer func() { <-c.one }()
	}
	time.Sleep(c.scale)
	if now := c.clock.Now(); now >= c.from && now < c.to {
		time.Sleep(time.Duration(c.to - now))
	}
	s.EndNS = c.clock.Now()
	return s
}

func summary(samples []probe.Sample) probe.Summary {
	return probe.Summarize("stub", probe.LayerDirect, samples, probe.EvidenceCounters)
}

// near is within a share of the value, or within slack.
func near(t *testing.T, what string, got *float64, want, share, slack float64) {
	t.Helper()
	if got == nil || math.Abs(*got-want) > max(share*want, slack) {
		t.Errorf("%s is %v ms, want %v", what, value(got), want)
	}
}

func value(p *float64) any {
	if p == nil {
		return nil
	}
	return *p
}

// TestOmission: ten calls a second for 10 s, of a server that stalls from 4 s to 6 s.
// From when they were due, 80 calls take about 1 ms, and 20 take 2.0, 1.9, ... 0.1 s.
// A closed loop waits for the one call that was stalled, and so never asks the others.
func TestOmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := bubble{}.Now()
		server := &stalling{clock: bubble{}, from: at + 4e9, to: at + 6e9, scale: time.Millisecond, one: make(chan struct{}, 1)}
		open, l, err := collect(t.Context(), server, probe.Request{Duration: 10 * time.Second, Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 10, To: 10}}}})
		if err != nil || len(open) != 100 || *l.Asked != 10 || l.Achieved != 10 || l.InFlightMax < 20 || l.InFlightMax > 21 { // at 6 s one ends and one begins
			t.Fatalf("%d records, %+v, %v; want 100 at 10 a second", len(open), l, err)
		}
		s := summary(open)
		near(t, "p50", s.P50, 1, 0, 1)
		near(t, "p90", s.P90, 1000, 0, 21)
		near(t, "p95", s.P95, 1500, 0, 21)
		near(t, "p99", s.P99, 1900, 0, 21)
		near(t, "max", s.Max, 2000, 0, 21)
		t.Logf("open:   %d records, p50 %v, p90 %v, p95 %v, p99 %v, max %v ms", s.Count, *s.P50, *s.P90, *s.P95, *s.P99, *s.Max)

		at = bubble{}.Now()
		server = &stalling{clock: bubble{}, from: at + 4e9, to: at + 6e9, scale: time.Millisecond, one: make(chan struct{}, 1)}
		closed, _, err := collect(t.Context(), server, probe.Request{Duration: 10 * time.Second, Concurrency: 1, Pace: 100 * time.Millisecond})
		s = summary(closed)
		t.Logf("closed: %d records, p50 %v, p90 %v, p95 %v, p99 %v, max %v ms", s.Count, *s.P50, *s.P90, *s.P95, *s.P99, *s.Max)
		if err != nil || s.Count < 79 || s.Count > 82 || *s.P95 > 2 {
			t.Errorf("a closed loop has %d records and a p95 of %v ms, want about 81, and a stall that is hardly seen", s.Count, *s.P95)
		}
	})
}

// TestOneWorkerIsLate: with one call at a time the same schedule is kept late, which the
// latencies contain and the service times do not.
func TestOneWorkerIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := bubble{}.Now()
		server := &stalling{clock: bubble{}, from: at + 4e9, to: at + 6e9, scale: time.Millisecond, one: make(chan struct{}, 1)}
		got, l, err := collect(t.Context(), server, probe.Request{Duration: 10 * time.Second, Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 10, To: 10}}, MaxInFlight: 1}})
		if err != nil || len(got) != 100 || l.InFlightMax != 1 {
			t.Fatalf("%d records, %+v, %v", len(got), l, err)
		}
		s := summary(got)
		near(t, "p90", s.P90, 1000, 0, 21)
		near(t, "p99", s.P99, 1900, 0, 21)
		near(t, "p95 of the service times", s.Service.P95, 1, 0, 1)
		rec := probe.NewRecorder("", "", 0)
		for _, x := range got {
			rec.Add(x)
		}
		rec.Finish(&s, l)
		near(t, "the largest lag", s.Load.LagMax, 1900, 0, 21)
	})
}

// TestStall is the same on the machine's clock: a stall of a tenth of the run, and a
// p99 within 5 % of what the schedule makes it.
func TestStall(t *testing.T) {
	second := time.Second / 4
	if os.Getenv("NETEMD_TEST_LONG") != "" {
		second = time.Second
	}
	const rate = 100 // in each second, scaled or not
	for try := 1; ; try++ {
		at := probe.Now()
		server := &stalling{clock: timers{}, from: at + 4*int64(second), to: at + 5*int64(second), scale: 100 * time.Microsecond}
		var got []probe.Sample
		r := probe.Request{Duration: 10 * second, Open: &probe.OpenLoop{Stages: []probe.Stage{{From: rate * float64(time.Second/second), To: rate * float64(time.Second/second)}}}}
		l, err := Run(t.Context(), server, r, Options{}, func(s probe.Sample) { got = append(got, s) })
		if err != nil || len(got) != 10*rate {
			t.Fatalf("%d records, %+v, %v; want 1000", len(got), l, err)
		}
		s := summary(got)
		// 100 of 1000 calls waited 1.00, 0.99, ... 0.01 of the stall: the 990th is 0.90 of it
		want := 0.9 * float64(second) / float64(time.Millisecond)
		t.Logf("p50 %v, p90 %v, p99 %v, max %v ms; analytic p99 %v ms, %+v", *s.P50, *s.P90, *s.P99, *s.Max, want, l)
		if math.Abs(*s.P99-want) <= 0.05*want {
			return
		}
		if try == 4 { // the machine may have had a stall of its own
			t.Fatalf("p99 is %v ms, want %v ms within 5 %%", *s.P99, want)
		}
	}
}
