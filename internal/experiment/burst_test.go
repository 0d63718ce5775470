package experiment

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"netemd/internal/kpi"
	"netemd/probe"
)

// crowd is a phase in which n clients begin at once, fail at once, and try again after pauses.
func crowd(n int, pause func(retry int) time.Duration, retries int) Observations {
	o := Observation{Case: "a", Phase: kpi.Fault, Repeat: 1, Begin: 1, End: math.MaxInt64}
	for range n {
		s, now := at(0, 0, probe.Reset), int64(1)
		for i := range retries + 1 {
			if i > 0 {
				now += int64(pause(i))
			}
			s.Attempts = append(s.Attempts, probe.Sample{StartNS: now, EndNS: now, Class: probe.Reset})
		}
		s.EndNS = now
		o.Samples = append(o.Samples, s)
	}
	return Observations{o}
}

func doubled(retry int) time.Duration { return time.Second << (retry - 1) }

// TestJitter tells clients with full jitter from those that forgot it, by the evenness of their
// pauses and by how their retries cluster.
func TestJitter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	jitter := crowd(100, func(retry int) time.Duration { return time.Duration(random.Int64N(int64(doubled(retry)))) }, 3)
	half := crowd(100, func(retry int) time.Duration {
		return doubled(retry)/2 + time.Duration(random.Int64N(int64(doubled(retry)/2)))
	}, 3)
	forgotten := crowd(100, doubled, 3)
	for name, c := range map[string]struct {
		o    Observations
		text string
		want kpi.Verdict
	}{
		"jitter, first":         {jitter, "uniform(retry_delay[1], 0s, 1s)", kpi.Passed},
		"jitter, second":        {jitter, "uniform(retry_delay[2], 0s, 2s)", kpi.Passed},
		"jitter, third":         {jitter, "uniform(retry_delay[3], 0s, 4s)", kpi.Passed},
		"jitter, other spread":  {jitter, "uniform(retry_delay[2], 0s, 4s)", kpi.Failed},
		"jitter, clusters":      {jitter, "dispersion[100ms] < 10", kpi.Passed},
		"half, first":           {half, "uniform(retry_delay[1], 0s, 1s)", kpi.Failed},
		"forgotten, first":      {forgotten, "uniform(retry_delay[1], 0s, 1s)", kpi.Failed},
		"forgotten, third":      {forgotten, "uniform(retry_delay[3], 0s, 4s)", kpi.Failed},
		"forgotten, clusters":   {forgotten, "dispersion[100ms] < 10", kpi.Failed},
		"forgotten, how much":   {forgotten, "between(dispersion[100ms], 95, 97)", kpi.Passed},
		"forgotten, median":     {forgotten, "retry_delay[2] == 2000", kpi.Passed},
		"forgotten, no more":    {forgotten, "retry_delay[4] > 0", kpi.Inconclusive},
		"forgotten, peak":       {forgotten, "retries_peak[20ms] == 100 && attempts_peak[20ms] == 100", kpi.Passed},
		"forgotten, wide peak":  {forgotten, "retries_peak[2001ms] == 200", kpi.Passed},
		"forgotten, half open":  {forgotten, "retries_peak[2s] == 100", kpi.Passed}, // a window is without its end
		"nobody outside, known": {forgotten, "retries_outside == 300", kpi.Passed},  // no fault stood
		"no retries, clusters":  {crowd(5, nil, 0), "dispersion[1s] > 0", kpi.Inconclusive},
		"no retries, no peak":   {crowd(5, nil, 0), "retries_peak[1s] == 0 && retries_mean[1s] == 0", kpi.Passed},
	} {
		k, err := kpi.Parse(c.text)
		if err != nil {
			t.Fatalf("%s: %v", c.text, err)
		}
		if got := k.Judge(newNumbers(c.o).in(together)); got.Verdict != c.want {
			t.Errorf("%s: %s: %s %s %+v, want %s", name, c.text, got.Verdict, got.Reason, got.Found, c.want)
		}
	}
}

// TestPeakSlides finds a cluster that stands across the edge of two bins.
func TestPeakSlides(t *testing.T) {
	for want, all := range map[int][]int64{
		4: {90, 95, 105, 110, 250},
		1: {0, 100, 200},
		2: {0, 99, 100, 200},
	} {
		if got := peak(all, 100); got != want {
			t.Errorf("%v: %d, want %d", all, got, want)
		}
	}
}

// TestOutside counts the retries that no fault explains.
func TestOutside(t *testing.T) {
	o := crowd(1, doubled, 3) // retries at 1, 3 and 7 s
	for _, c := range []struct {
		faults []Span
		grace  time.Duration
		want   int
	}{
		{nil, time.Hour, 3},
		{[]Span{{0, 8e9}}, 0, 0},
		{[]Span{{0, 2e9}}, 0, 2},
		{[]Span{{0, 2e9}}, 1100 * time.Millisecond, 1},
		{[]Span{{2e9, 4e9}}, time.Second, 2},
		{[]Span{{0, 15e8}, {6e9, 8e9}}, 100 * time.Millisecond, 1},
	} {
		o[0].Faults, o[0].Grace = c.faults, c.grace
		if got := o.outside(); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
