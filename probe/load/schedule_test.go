package load

import (
	"math"
	"testing"
	"time"

	"netemd/probe"
)

// times are all times of a schedule before a length.
func times(o probe.OpenLoop, length time.Duration, seed uint64) []time.Duration {
	s := newSchedule(o, length, seed)
	var out []time.Duration
	for {
		at, ok := s.next()
		if !ok || at >= length {
			return out
		}
		out = append(out, at)
	}
}

// TestEven: how many calls are due in each second is what the rate's sum says.
func TestEven(t *testing.T) {
	const s = time.Second
	tests := []struct {
		name   string
		stages []probe.Stage
		length time.Duration
		want   []int // calls due in each second
	}{
		{"constant", []probe.Stage{{From: 100, To: 100}}, 3 * s, []int{100, 100, 100}},
		{"its last rate goes on", []probe.Stage{{For: s, From: 10, To: 20}}, 3 * s, []int{15, 20, 20}},
		{"ramp from 0", []probe.Stage{{For: 2 * s, To: 100}}, 2 * s, []int{25, 75}},
		{"ramp to 0, and nothing after it", []probe.Stage{{For: 2 * s, From: 100}}, 4 * s, []int{75, 25, 0, 0}},
		{"ramp to the end", []probe.Stage{{For: s, From: 10, To: 10}, {From: 10, To: 30}}, 3 * s, []int{10, 15, 25}},
		{"spike", []probe.Stage{{For: s, From: 10, To: 10}, {For: s, From: 1000, To: 1000}, {From: 10, To: 10}}, 4 * s, []int{10, 1000, 10, 10}},
		{"pause", []probe.Stage{{For: s, From: 10, To: 10}, {For: s}, {From: 10, To: 10}}, 3 * s, []int{10, 0, 10}},
		{"a thousandth of a second", []probe.Stage{{From: 100_000, To: 100_000}}, s, []int{100_000}},
		{"seldom", []probe.Stage{{From: 0.5, To: 0.5}}, 4 * s, []int{1, 0, 1, 0}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := make([]int, len(test.want))
			before := time.Duration(-1)
			for _, at := range times(probe.OpenLoop{Stages: test.stages}, test.length, 1) {
				if at < before {
					t.Fatalf("%v comes after %v", at, before)
				}
				before = at
				got[at/s]++
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("calls in each second %v, want %v", got, test.want)
					break
				}
			}
		})
	}
	for i, at := range times(probe.OpenLoop{Stages: []probe.Stage{{From: 10, To: 10}}}, 10*s, 1) {
		if at != time.Duration(i)*s/10 {
			t.Fatalf("call %d is due at %v", i, at)
		}
	}
}

// TestPoisson: the intervals of a constant rate are exponential, and those of a ramp are
// once each is measured by the rate's sum, at the level of 1e-6 by the inequality of
// Dvoretzky, Kiefer and Wolfowitz with Massart's constant. The same seed makes the same
// schedule.
func TestPoisson(t *testing.T) {
	const n = 20_000
	limit := math.Sqrt(math.Log(2/1e-6) / (2 * n))
	for name, stage := range map[string]probe.Stage{
		"constant": {For: 100 * time.Second, From: 250, To: 250},
		"ramp":     {For: 100 * time.Second, From: 0, To: 500},
	} {
		t.Run(name, func(t *testing.T) {
			o := probe.OpenLoop{Stages: []probe.Stage{stage}, Poisson: true}
			got := times(o, stage.For, 7)
			if len(got) < n {
				t.Fatalf("%d calls, want about 25000", len(got))
			}
			slope := (stage.To - stage.From) / stage.For.Seconds()
			sum := func(at time.Duration) float64 {
				x := at.Seconds()
				return stage.From*x + slope*x*x/2
			}
			// under the hypothesis 1-exp(-interval) is uniform
			const bins = 1000
			var counts [bins]int
			before := 0.0
			for _, at := range got[:n] {
				u := 1 - math.Exp(before-sum(at))
				counts[min(bins-1, int(u*bins))]++
				before = sum(at)
			}
			seen := 0
			for i, c := range counts {
				seen += c
				if d := math.Abs(float64(seen)/n - float64(i+1)/bins); d > limit {
					t.Fatalf("the distribution of intervals is off by %v at %v, want at most %v", d, float64(i+1)/bins, limit)
				}
			}
			again, other := times(o, stage.For, 7), times(o, stage.For, 8)
			if len(again) != len(got) || again[n-1] != got[n-1] || other[0] == got[0] {
				t.Error("the seed does not make the schedule")
			}
		})
	}
}
