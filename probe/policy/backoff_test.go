package policy

import (
	"math"
	"slices"
	"testing"
	"time"

	"netemd/probe"
)

// level is the chance that a right generator would be refused, by one test of a distribution.
// The seed is fixed, so that a run which passed once always passes.
const level = 1e-6

// evenly is the test of Dvoretzky, Kiefer and Wolfowitz (with Massart's constant): whether
// the values can come from an even distribution over least..most.
func evenly(values []time.Duration, least, most time.Duration) bool {
	sorted := slices.Sorted(slices.Values(values))
	n, worst := float64(len(sorted)), 0.0
	for i, v := range sorted {
		f := min(max(float64(v-least)/float64(most-least), 0), 1)
		worst = max(worst, math.Abs(f-float64(i)/n), math.Abs(f-float64(i+1)/n))
	}
	return worst <= math.Sqrt(math.Log(2/level)/(2*n))
}

// pauses are those before each retry of 2,000 calls.
func pauses(r Retry, seed uint64) (byRetry [][]time.Duration) {
	full := *Policy{Retry: &r}.WithDefaults().Retry
	byRetry = make([][]time.Duration, full.MaxAttempts-1)
	for seq := range 2000 {
		var before time.Duration
		for i := range byRetry {
			before = full.delay(i+1, before, source(seed, seq, i+1))
			byRetry[i] = append(byRetry[i], before)
		}
	}
	return byRetry
}

func TestJitter(t *testing.T) {
	const base = 100 * ms
	retry := func(b Backoff) Retry {
		return Retry{MaxAttempts: 7, Backoff: b, Base: base, MaxDelay: 2 * time.Second}
	}
	grown := func(i int) time.Duration { return min(base<<i, 2*time.Second) }
	for i, values := range pauses(retry(FullJitter), 1) {
		if !evenly(values, 0, grown(i)) || slices.Max(values) > grown(i) {
			t.Errorf("full jitter, retry %d: not even from 0 to %s", i+1, grown(i))
		}
	}
	for i, values := range pauses(retry(EqualJitter), 1) {
		if !evenly(values, grown(i)/2, grown(i)) || slices.Min(values) < grown(i)/2 || slices.Max(values) > grown(i) {
			t.Errorf("equal jitter, retry %d: not even from %s to %s", i+1, grown(i)/2, grown(i))
		}
	}
	for i, values := range pauses(retry(Exponential), 1) {
		if evenly(values, 0, grown(i)) || evenly(values, grown(i)/2, grown(i)) {
			t.Errorf("no jitter, retry %d: the test takes it for jitter", i+1)
		}
	}
	decorrelated := pauses(retry(DecorrelatedJitter), 1)
	if !evenly(decorrelated[0], base, 3*base) {
		t.Error("decorrelated jitter, first retry: not even from the base to three times it")
	}
	ratios := make([]time.Duration, 0, 2000) // of what a pause may be, where its limit does not cut it
	for i, values := range decorrelated {
		for seq, v := range values {
			most := 3 * base
			if i > 0 {
				most = 3 * decorrelated[i-1][seq]
			}
			if v < base || v > min(most, 2*time.Second) {
				t.Fatalf("decorrelated jitter, retry %d: %s is not in %s..%s", i+1, v, base, min(most, 2*time.Second))
			}
			if i == 1 {
				ratios = append(ratios, time.Duration(float64(v-base)/float64(most-base)*float64(time.Second)))
			}
		}
	}
	if !evenly(ratios, 0, time.Second) {
		t.Error("decorrelated jitter, second retry: not even from the base to three times the first")
	}
}

// The pauses of calls and of retries have nothing to do with one another, and each seed has
// its own.
func TestStreams(t *testing.T) {
	r := Retry{MaxAttempts: 4, Backoff: FullJitter, Base: time.Second, Factor: 1}
	a, again, other := pauses(r, 1), pauses(r, 1), pauses(r, 2)
	if !slices.Equal(a[0], again[0]) || slices.Equal(a[0], other[0]) {
		t.Error("a seed does not decide the pauses")
	}
	// The correlation of n independent pairs is about normal with a deviation of 1/sqrt(n): six
	// of them are passed by chance in 2e-9.
	bound := 6 / math.Sqrt(2000)
	for name, pair := range map[string][2][]time.Duration{
		"retries": {a[0], a[1]}, "seeds": {a[0], other[0]}, "calls": {a[0][1:], a[0][:1999]},
	} {
		if c := correlation(pair[0][:1999], pair[1][:1999]); math.Abs(c) > bound {
			t.Errorf("%s: correlation %.3f, want at most %.3f", name, c, bound)
		}
	}
}

func correlation(a, b []time.Duration) float64 {
	var sa, sb, saa, sbb, sab float64
	for i := range a {
		x, y := a[i].Seconds(), b[i].Seconds()
		sa, sb, saa, sbb, sab = sa+x, sb+y, saa+x*x, sbb+y*y, sab+x*y
	}
	n := float64(len(a))
	return (n*sab - sa*sb) / math.Sqrt((n*saa-sa*sa)*(n*sbb-sb*sb))
}

// Limits and growth cannot overflow.
func TestDelayLimits(t *testing.T) {
	r := Retry{MaxAttempts: 100, Backoff: Exponential, Base: 10 * time.Minute, Factor: 10, MaxDelay: time.Hour}
	for n := 1; n < 100; n++ {
		if d := r.delay(n, 0, nil); d < 10*time.Minute || d > time.Hour {
			t.Fatalf("retry %d: %s", n, d)
		}
	}
}

// What is drawn for a call does not depend on the calls beside it.
func TestPausesOfACall(t *testing.T) {
	p := Policy{Retry: &Retry{MaxAttempts: 2, Backoff: FullJitter, Base: time.Second}}
	var alone time.Duration
	inWorld(t, p, Options{Seed: 5}, func(w *world) {
		w.peer.answer("eof@0s")
		alone = w.call(7).Duration()
	})
	inWorld(t, p, Options{Seed: 5}, func(w *world) {
		samples, done := make([]probe.Sample, 10), make([]chan struct{}, 10)
		for i := range samples {
			w.peer.answer("eof@0s")
			done[i] = w.begin(i, &samples[i])
		}
		w.clock.Run()
		for i := range samples {
			<-done[i]
		}
		if got := samples[7].Duration(); got != alone || samples[6].Duration() == alone {
			t.Errorf("%s, and %s alone", got, alone)
		}
	})
}
