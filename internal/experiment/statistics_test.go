package experiment

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/kpi"
	"netemd/probe"
)

func TestAcross(t *testing.T) {
	want := &Across{Repeats: []float64{3, 1, 9}, Median: 3, Least: 1, Largest: 9, Level: .75}
	if d := cmp.Diff(want, across([]float64{3, 1, 9})); d != "" {
		t.Error(d)
	}
	if across([]float64{3}) != nil {
		t.Error("one repeat has no spread")
	}
}

// TestContrasts tells a fault that slows from one that does not, and says nothing of void runs.
func TestContrasts(t *testing.T) {
	phase := func(name, phase string, repeat int, latency func(i int64) int64) Observation {
		o := Observation{Case: name, Phase: phase, Repeat: repeat}
		for i := range int64(30) {
			o.Samples = append(o.Samples, at(i, latency(i), probe.OK), at(i, 1000, probe.Timeout))
		}
		return o
	}
	fast := func(i int64) int64 { return 1 + i%5 }
	slow := func(i int64) int64 { return 100 + i%5 }
	void := phase("void", kpi.Fault, 1, slow)
	void.Void = "the fault was lost"
	got := Contrasts(Observations{
		phase("slow", kpi.Control, 0, fast), phase("slow", kpi.Fault, 1, slow), phase("slow", kpi.Fault, 2, slow),
		phase("same", kpi.Control, 0, fast), phase("same", kpi.Fault, 1, fast),
		phase("void", kpi.Control, 0, fast), void,
		phase("alone", kpi.Fault, 1, slow),
	})
	if len(got) != 2 || got[0].Case != "slow" || got[0].Control != 30 || got[0].Fault != 60 || got[0].ControlMedian != 3 || got[0].FaultMedian != 102 ||
		got[0].Larger != 1 || !got[0].Differ() || got[1].Larger != .5 || got[1].Differ() {
		t.Errorf("%+v", got)
	}
}
