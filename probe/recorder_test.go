package probe

import (
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// draw is a latency with a long tail, from 1 us to some seconds.
func draw(r *rand.Rand) time.Duration {
	return time.Microsecond + time.Duration(math.Exp(r.NormFloat64()*2)*float64(time.Millisecond))
}

func of(d time.Duration) Sample { return Sample{StartNS: 1, EndNS: 1 + int64(d), Class: OK} }

// TestHistogram: beyond the number that is kept, percentiles differ from the exact ones
// by 0.1 % at most, and the largest value does not.
func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	rec := NewRecorder("t", LayerDirect, SlowThreshold)
	parts := []*Recorder{NewRecorder("t", LayerDirect, SlowThreshold), NewRecorder("t", LayerDirect, SlowThreshold), NewRecorder("t", LayerDirect, SlowThreshold)}
	var all []time.Duration
	for i := range 5 * exactValues {
		d := draw(r)
		all = append(all, d)
		rec.Add(of(d))
		parts[min(i%7, 2)].Add(of(d)) // two are exact, the third is not
	}
	slices.Sort(all)
	merged := NewRecorder("t", LayerDirect, SlowThreshold)
	for _, p := range parts {
		merged.Merge(p)
	}
	for name, s := range map[string]Summary{"one": rec.Summary(""), "merged": merged.Summary("")} {
		if s.Count != len(all) || s.OK != len(all) || s.Percentiles != PercentilesHDR || s.Beyond != 0 {
			t.Errorf("%s: %+v", name, s)
		}
		for _, q := range []struct {
			got  *float64
			rank int
		}{{s.P50, 50_000}, {s.P90, 90_000}, {s.P95, 95_000}, {s.P99, 99_000}, {s.P999, 99_900}, {s.Service.P99, 99_000}} {
			want := milliseconds(all[q.rank-1])
			if q.got == nil || math.Abs(*q.got-want) > want/1000+0.0006 {
				t.Errorf("%s: value of rank %d is %v, want %v within 0.1 %%", name, q.rank, *q.got, want)
			}
		}
		if want := milliseconds(all[len(all)-1]); *s.Max != want {
			t.Errorf("%s: max %v, want %v exactly", name, *s.Max, want)
		}
	}
}

// TestMergeOfFew: recorders that have all their values merge to one that has.
func TestMergeOfFew(t *testing.T) {
	a, b, both := NewRecorder("t", "", 1), NewRecorder("t", "", 1), NewRecorder("t", "", 1)
	for i := range 101 {
		s := of(time.Duration(i) * time.Millisecond)
		s.Bytes, s.Turns, s.Phases = 100, i%3, []Phase{{Name: PhaseConnect, NS: int64(i)}}
		s.Policy = []PolicyEvent{{Policy: "retry", Event: "scheduled"}}
		s.Events = []Retransmission{{Cause: RTO}}
		if i == 7 {
			s.Class, s.Cause = Timeout, RTO
		}
		s.Warmup = i == 8
		both.Add(s)
		[]*Recorder{a, b}[i%2].Add(s)
	}
	a.Merge(b)
	if d := cmp.Diff(both.Summary("e"), a.Summary("e")); d != "" {
		t.Errorf("merged (-one +merged):\n%s", d)
	}
}

// TestBeyond: what no class holds is counted, and stands at the top.
func TestBeyond(t *testing.T) {
	rec := NewRecorder("t", "", SlowThreshold)
	for range exactValues {
		rec.Add(of(time.Millisecond))
	}
	for range exactValues / 10 {
		rec.Add(of(3 * time.Hour))
	}
	rec.Add(of(5 * time.Hour))
	s := rec.Summary("")
	if s.Beyond != exactValues/10+1 || *s.P99 != milliseconds(5*time.Hour) || *s.Max != milliseconds(5*time.Hour) || math.Abs(*s.P90-1) > 0.002 {
		t.Errorf("beyond %d, p90 %v, p99 %v, max %v", s.Beyond, *s.P90, *s.P99, *s.Max)
	}
}

// TestRecorder is what a summary says beside its percentiles.
func TestRecorder(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	at := func(due, start, end int64) Sample {
		return Sample{DueNS: due * ms, StartNS: start * ms, EndNS: end * ms, Class: OK}
	}
	rec := NewRecorder("t", "direct", time.Second)
	warm := at(1, 1, 9000)
	warm.Warmup, warm.Class, warm.Cause = true, Timeout, Unknown
	late := at(100, 150, 160)
	late.Phases, late.Turns, late.Bytes = []Phase{{Name: PhaseConnect, NS: 2 * ms}, {Name: PhaseQuery, NS: 8 * ms}}, 3, 1000
	fast := at(200, 200, 220)
	fast.Phases, fast.Turns, fast.Bytes = []Phase{{Name: PhaseQuery, NS: 20 * ms}}, 5, 4000
	tried := at(300, 300, 340)
	tried.Attempts = []Sample{{Class: Reset, EndNS: 310 * ms, Events: []Retransmission{{Cause: TLP}, {Cause: TLP, Shared: true}}}, {Class: OK}}
	tried.Policy = []PolicyEvent{{Policy: "retry", Event: "scheduled"}, {Policy: "breaker", Event: "opened"}}
	refused := Sample{DueNS: 400 * ms, StartNS: 400 * ms, EndNS: 400 * ms, Class: Rejected, Policy: []PolicyEvent{{Policy: "breaker", Event: "rejected"}}}
	stale := at(500, 500, 501)
	stale.Degraded, stale.Policy = "cached", []PolicyEvent{{Policy: "fallback", Event: "used"}}
	for _, s := range []Sample{warm, late, fast, tried, refused, stale} {
		rec.Add(s)
	}
	got := rec.Summary("seen")
	rec.Finish(&got, Load{Loop: "open", Seed: 9})
	want := Summary{
		Target: "t", Layer: "direct", Count: 5, OK: 4, Warmup: 1, Errors: map[Class]int{Rejected: 1}, Failed: map[Class]PhaseSummary{Rejected: {1, f(0), f(0), f(0)}},
		P50: f(40), P90: f(60), P95: f(60), P99: f(60), P999: f(60), Max: f(60),
		Service:     Quantiles{P50: f(20), P90: f(40), P95: f(40), P99: f(40), P999: f(40), Max: f(40)},
		Percentiles: PercentilesExact, Causes: map[Cause]int{}, ThresholdMS: 1000, Retransmissions: map[Cause]int{TLP: 1}, Evidence: "seen",
		Attempts: 4, AttemptsPerCall: f(0.8), Rejected: 2, Degraded: 1, Turns: f(3),
		Phases:  map[string]PhaseSummary{PhaseConnect: {1, f(2), f(2), f(2)}, PhaseQuery: {2, f(8), f(20), f(20)}},
		Policy:  map[string]map[string]int{"retry": {"scheduled": 1}, "breaker": {"opened": 1, "rejected": 1}, "fallback": {"used": 1}},
		Goodput: &Goodput{Bytes: 5000, PerSecond: 5000 / 0.351, CallP50: 100_000},
		Load:    &Load{Loop: "open", Seed: 9, LagP50: f(0), LagP99: f(50), LagMax: f(50)},
	}
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) })
	if d := cmp.Diff(want, got, near); d != "" {
		t.Errorf("summary (-want +got):\n%s", d)
	}
	if done, failed := rec.Count(); done != 5 || failed != 1 {
		t.Errorf("%d done, %d failed", done, failed)
	}
}

// TestBoundedMemory: recorder and attribution have the same heap after N samples and
// after ten times as many. With NETEMD_TEST_LONG it is an hour of 20,000 a second.
func TestBoundedMemory(t *testing.T) {
	n := 40_000
	if long {
		n = 7_200_000 // and ten times as many are 72 million
	}
	r := rand.New(rand.NewPCG(3, 4))
	attr := NewAttributor(Attribution{Traced: true, ClientCookie: clientCookie, ServerCookie: serverCookie, Longest: 5 * time.Second})
	rec := NewRecorder("t", LayerDirect, SlowThreshold)
	const gap = int64(time.Second / 20_000)
	now, given := int64(0), 0
	run := func(n int) uint64 {
		for range n {
			now += gap
			s := Sample{Seq: given, DueNS: now, StartNS: now, EndNS: now + int64(draw(r)), Local: clientEnd, Remote: serverEnd, Class: OK}
			s.Phases = []Phase{{Name: PhaseConnect, NS: int64(draw(r))}, {Name: PhaseQuery, NS: int64(draw(r))}}
			given++
			if given%50 == 0 { // 400 retransmissions a second, half of them of nobody we know
				e := again(0, TLP)
				e.TimeNS = now
				if given%100 == 0 {
					e.Local = clientEnd2
				}
				attr.Event(e)
			}
			attr.Add(s)
			if given%5000 == 0 {
				for _, s := range attr.Flush(now) {
					rec.Add(s)
				}
			}
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	first := run(n)
	last := run(9 * n)
	t.Logf("heap %d kB after %d samples, %d kB after %d", first>>10, n, last>>10, given)
	if last > first+first/4+1<<20 {
		t.Errorf("heap %d bytes after %d samples, %d after %d", first, n, last, given)
	}
	for _, s := range attr.Flush(math.MaxInt64) {
		rec.Add(s)
	}
	if s := rec.Summary(""); s.Count != given || attr.Dropped() != 0 {
		t.Errorf("%d of %d samples, %d events dropped", s.Count, given, attr.Dropped())
	}
}

// TestFirstErrors: a summary says how the first call of each class failed, in whatever order
// its recorders come together.
func TestFirstErrors(t *testing.T) {
	a, b := NewRecorder("t", LayerDirect, time.Second), NewRecorder("t", LayerDirect, time.Second)
	a.Add(Sample{Class: OK})
	a.Add(Sample{Class: Reset, Error: "first reset"})
	a.Add(Sample{Class: Reset, Error: "second reset"})
	b.Add(Sample{Class: Reset, Error: "third reset"})
	b.Add(Sample{Class: Timeout})
	b.Add(Sample{Class: Timeout, Error: "first timeout"})
	a.Merge(b)
	want := map[Class]string{Reset: "first reset", Timeout: "first timeout"}
	if got := a.Summary("").FirstErrors; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
