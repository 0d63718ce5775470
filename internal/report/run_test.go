package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/probe"
)

const msNS = int64(time.Millisecond)

// ran is an experiment with a phase of each kind, and its calls.
func ran() (Experiment, experiment.Observations) {
	sample := func(at, took int64, class probe.Class, events ...probe.PolicyEvent) probe.Sample {
		return probe.Sample{StartNS: at * msNS, EndNS: (at + took) * msNS, Class: class, Policy: events}
	}
	opened := probe.PolicyEvent{TimeNS: 1500 * msNS, Policy: "breaker", Event: "opened"}
	var fast, mixed, later []probe.Sample
	for i := range int64(50) {
		fast = append(fast, sample(i*10, 5, probe.OK))
		later = append(later, sample(3000+i*10, 8, probe.OK))
		class := probe.OK
		if i%5 == 0 {
			class = probe.Timeout
		}
		mixed = append(mixed, sample(1000+i*20, 300, class))
	}
	mixed = append(mixed, sample(1500, 0, probe.Rejected, opened))
	fault1 := experiment.Observation{
		Case: "lossy", Phase: kpi.Fault, Repeat: 1, Begin: 1000 * msNS, End: 2000 * msNS, Samples: mixed, Asked: .2,
		Counters: &fault.Counters{Seen: 1000, Lost: 203}, Faults: []experiment.Span{{Begin: 1000 * msNS, End: 2000 * msNS}},
	}
	e := Experiment{
		Name: "x/y", Question: "what <b>is</b> it?", Verdict: kpi.Failed, Seed: 7, Repeats: 1, PlanSHA256: Hash([]byte("plan")),
		Started: time.Unix(1000, 0), Ended: time.Unix(1012, 500e6),
		KPIs: []KPI{
			{Condition: "p99_ms < 500", Case: "lossy", Verdict: kpi.Passed, Measured: []Number{{Name: "p99_ms", Case: "lossy", Phase: kpi.Fault, Value: 300}}, Reference: "311 ms"},
			{Condition: "success == 100% of lossy", Verdict: kpi.Failed, Measured: []Number{{Name: "success", Phase: kpi.Fault, Value: .8, Of: 50, Low: new(.6), High: new(.9)}}},
			{Condition: "calls > 0 of gone", Verdict: kpi.Inconclusive, Reason: "the fault was lost\nand more", Measured: []Number{}},
		},
	}
	return e, experiment.Observations{
		{Case: "lossy", Phase: kpi.Control, Begin: 0, End: 500 * msNS, Samples: fast, Asked: math.NaN()},
		fault1,
		{Case: "lossy", Phase: kpi.Recovery, Repeat: 1, Begin: 3000 * msNS, End: 3500 * msNS, Samples: later, Asked: math.NaN()},
		{Case: "gone", Phase: kpi.Fault, Repeat: 1, Void: "the fault was lost", Asked: math.NaN()},
	}
}

// TestRunPage: the page says the verdict first, in words, and all numbers of the result.
func TestRunPage(t *testing.T) {
	e, o := ran()
	var b strings.Builder
	if err := WriteRunHTML(&b, e, o); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	at := -1
	for _, want := range []string{
		"<title>x/y: failed</title>", `<span class="verdict failed">✗&nbsp;failed</span>`, "what &lt;b&gt;is&lt;/b&gt; it?",
		"p99_ms &lt; 500", "311", "success 80% of 50 (60..90)", "the fault was lost; and more",
		"Case lossy", "timeout 10, rejected 1", "asked 20 %, measured 20.3 % of 1000",
		`class="wide ecdf"`, `class="window"`, `class="dot"`, `class="bad"`, `class="spared"`, "In order: open.",
		"Case gone", "Counts for nothing:</strong> fault, repeat 1: the fault was lost", "sha256 " + e.PlanSHA256, "13s",
	} {
		i := strings.Index(page, want)
		if i < 0 {
			t.Errorf("no %q in the page", want)
		} else if i < at && !strings.HasPrefix(want, "class") {
			t.Errorf("%q comes too early", want)
		}
		at = max(at, i)
	}
	for _, foreign := range []string{"http://", "https://", "<script", "@import", "url("} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %q", foreign)
		}
	}
	if strings.Contains(page, "NaN") {
		t.Error("the page has a NaN")
	}
}

// TestThin: of many calls those are drawn that stand out.
func TestThin(t *testing.T) {
	var all []probe.Sample
	for i := range int64(100_000) {
		all = append(all, probe.Sample{StartNS: i * 1000, EndNS: i*1000 + 100_000, Class: probe.OK})
	}
	all[54_321].EndNS += 900 * msNS
	all[12_345].Class = probe.Reset
	got := thin(all)
	slow, reset := 0, 0
	for _, s := range got {
		if s.Duration() > 500*time.Millisecond {
			slow++
		}
		if s.Class == probe.Reset {
			reset++
		}
	}
	if len(got) > maxDots+10 || slow != 1 || reset != 1 {
		t.Errorf("%d calls, %d slow, %d reset", len(got), slow, reset)
	}
}

// TestJUnit: a condition that does not hold is a failure, one that could not be judged an error.
func TestJUnit(t *testing.T) {
	e, o := ran()
	e.Reason = "the agent went"
	dir := filepath.Join(t.TempDir(), "x", "y")
	if err := recordedRun(t, dir, e, o).Finish(e, o, Machine{}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, JUnitFile))
	if err != nil {
		t.Fatal(err)
	}
	var got junitSuites
	if err := xml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	s := got.Suites[0]
	var cases []string
	for _, c := range s.Cases {
		word := "passed"
		if c.Failure != nil {
			word = "failure: " + c.Failure.Message
		} else if c.Error != nil {
			word = "error: " + c.Error.Message
		}
		cases = append(cases, c.Name+": "+word)
	}
	want := `x/y 4 1 2 12.5 1970-01-01T00:16:40
p99_ms < 500 (lossy): passed
success == 100% of lossy: failure: success 80% of 50 (60..90)
calls > 0 of gone: error: the fault was lost; and more
the run: error: the agent went`
	if all := fmt.Sprintln(s.Name, s.Tests, s.Failures, s.Errors, s.Time, s.Started) + strings.Join(cases, "\n"); all != want {
		t.Errorf("%s\nwant\n%s", all, want)
	}
	if plan, err := os.ReadFile(filepath.Join(dir, PlanFile)); err != nil || Hash(plan) != e.PlanSHA256 {
		t.Errorf("the plan: %s, %v", plan, err)
	}
}
