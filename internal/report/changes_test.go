package report

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/kpi"
	"netemd/probe"
)

// drawnRun is a run with so many repeats, of 100 calls each. Each repeat is slower or quicker as a
// whole by about 10 %, as on a machine that others use. Under the fault calls take so long, and
// so many fail and are made again.
func drawnRun(seed uint64, repeats int, faultMS, failing float64) Run {
	draw := rand.New(rand.NewPCG(seed, 1))
	r := Run{Experiment: Experiment{Name: "x", Verdict: kpi.Passed, Repeats: repeats, Seed: 7, PlanSHA256: "aaaaaaaaaaaaaaaa"}}
	r.KPIs = []KPI{{Condition: "success > 90%", Case: "lossy", Verdict: kpi.Passed, Measured: []Number{}}}
	calls := func(phase string, repeat int, ms, failing float64) {
		busy := math.Exp(.1 * draw.NormFloat64())
		o := experiment.Observation{Case: "lossy", Phase: phase, Repeat: repeat, Asked: math.NaN()}
		for i := range 100 {
			took := ms * busy * math.Exp(.3*draw.NormFloat64())
			s := probe.Sample{Seq: i, StartNS: int64(i) * msNS, Class: probe.OK, Attempts: make([]probe.Sample, 1)}
			if draw.Float64() < failing {
				s.Class, s.Attempts = probe.Timeout, make([]probe.Sample, 3)
			}
			s.EndNS = s.StartNS + int64(took*float64(time.Millisecond))
			o.Samples = append(o.Samples, s)
		}
		r.Observations = append(r.Observations, o)
	}
	calls(kpi.Control, 0, 5, 0)
	for i := range repeats {
		calls(kpi.Fault, i+1, faultMS, failing)
		calls(kpi.Recovery, i+1, 5, 0)
	}
	return r
}

func changedOf(c Changed) (out []string) {
	for _, e := range c.Experiments {
		for _, m := range e.Measures {
			if m.Changed {
				out = append(out, m.Case+" "+m.Phase+" "+m.What)
			}
		}
	}
	return out
}

// TestChanges: what really changed is found, in both directions, and what did not is not.
func TestChanges(t *testing.T) {
	before, after := drawnRun(1, 3, 20, .1), drawnRun(2, 3, 60, .4)
	want := []string{"lossy fault p50_ms", "lossy fault success", "lossy fault attempts_per_call"}
	for _, pair := range [][2]Run{{before, after}, {after, before}} {
		c := Changes(pair[:1], pair[1:])
		got := slices.DeleteFunc(changedOf(c), func(s string) bool { return strings.Contains(s, "control") })
		if !slices.Equal(got, want) {
			t.Errorf("%q", got)
		}
	}
	if c := Changes([]Run{before}, []Run{before}); len(changedOf(c)) != 0 || len(c.Experiments[0].Notes) != 0 || c.Experiments[0].Sum() == "" {
		t.Errorf("a run beside itself: %+v", c.Experiments[0])
	}
}

// TestChangesOfNoise: two runs of one kind, whose repeats differ as those of a busy machine do,
// are told to differ no more often than the t test allows: at the level of 99 % in few of 200
// pairs (of the two phases with repeats 4 are expected, 13 or more have a probability below
// 0.1 %). Without the repeats nearly each pair would be.
func TestChangesOfNoise(t *testing.T) {
	wrong, byCalls := 0, 0
	for seed := range uint64(200) {
		c := Changes([]Run{drawnRun(1000+seed, 3, 20, .1)}, []Run{drawnRun(5000+seed, 3, 20, .1)})
		for _, m := range c.Experiments[0].Measures {
			if m.Phase == kpi.Control { // of which there is one only
				continue
			}
			if m.Changed {
				wrong++
			}
			if m.What == latencyP50 && m.P < .001 {
				byCalls++
			}
		}
	}
	if wrong > 12 || byCalls < 50 {
		t.Errorf("%d wrong, %d by calls alone", wrong, byCalls)
	}
}

// TestChangesSay: other plans, verdicts, seeds and phases that count for nothing are said.
func TestChangesSay(t *testing.T) {
	before, after := drawnRun(1, 1, 20, .1), drawnRun(1, 1, 20, .1)
	after.PlanSHA256, after.Seed, after.Quick, after.Reason = "bbbbbbbbbbbbbbbb", 8, true, "the agent went"
	after.KPIs[0].Verdict = kpi.Failed
	before.Machine.Kernel, after.Machine.Kernel = "6.1", "6.12"
	after.Observations[1].Void = "the fault was lost"
	c := Changes([]Run{before, {Experiment: Experiment{Name: "gone"}}}, []Run{after, {Experiment: Experiment{Name: "new"}}})
	e := c.Experiments[0]
	if len(c.Experiments) != 1 || !slices.Equal(c.OnlyBefore, []string{"gone"}) || !slices.Equal(c.OnlyAfter, []string{"new"}) || e.SamePlan {
		t.Errorf("%+v", c)
	}
	all := strings.Join(e.Notes, "\n")
	for _, want := range []string{
		"The plans are not the same: sha256 aaaaaaaaaaaa, then bbbbbbbbbbbb.", "The seeds differ: 7, then 8.", "--quick", "The second run broke off: the agent went.",
		"A run has one repeat", "Kernel: 6.1, then 6.12.", "fault of lossy is not compared: the fault was lost.",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	if len(e.KPIs) != 1 || e.KPIs[0].Before != kpi.Passed || e.KPIs[0].After != kpi.Failed || !strings.Contains(e.Sum(), "1 of 1 verdicts") {
		t.Errorf("%+v, %s", e.KPIs, e.Sum())
	}
}
