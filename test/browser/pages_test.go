package browser

import (
	"bufio"
	"bytes"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/internal/report"
	"netemd/probe"
)

const ms = int64(time.Millisecond)

// calls are drawn ones from a time on; some fail, and a breaker opens.
func calls(seed uint64, begin int64, n int, medianMS, failing float64) (all []probe.Sample) {
	draw := rand.New(rand.NewPCG(seed, 3))
	for i := range n {
		s := probe.Sample{Seq: i, StartNS: begin + int64(i)*20*ms, Class: probe.OK}
		took := medianMS * math.Exp(.4*draw.NormFloat64())
		if draw.Float64() < failing {
			s.Class, took = probe.Timeout, 500
		}
		s.EndNS = s.StartNS + int64(took*float64(ms))
		if s.Duration() > probe.SlowThreshold {
			s.Cause = probe.RTO
		}
		s.Attempts = []probe.Sample{{StartNS: s.StartNS, EndNS: s.EndNS, Class: s.Class, Cause: s.Cause}}
		if i == n/2 && failing > 0 {
			s.Policy = []probe.PolicyEvent{{TimeNS: s.EndNS, Policy: "breaker", Event: "opened"}, {TimeNS: s.EndNS + 100*ms, Policy: "breaker", Event: "half_opened"}, {TimeNS: s.EndNS + 200*ms, Policy: "breaker", Event: "closed"}}
		}
		all = append(all, s)
	}
	return all
}

// run is an experiment of two cases, each with phases in three repeats, and long words.
func run(name string) (report.Experiment, experiment.Observations) {
	var o experiment.Observations
	for i, c := range []string{"lossy", "a-case-with-a-name-that-is-as-long-as-names-are"} {
		at := int64(i+1) * 100_000 * ms
		span := func(phase string, repeat int, n int, medianMS, failing float64) {
			end := at + int64(n)*20*ms
			x := experiment.Observation{
				Case: c, Phase: phase, Repeat: repeat, Begin: at, End: end, Unix: 1e9, Asked: math.NaN(),
				Samples: calls(uint64(len(o)+1), at, n, medianMS, failing),
			}
			if phase != kpi.Control {
				x.Faults = []experiment.Span{{Begin: int64(i+1)*100_000*ms + int64(repeat)*10_000*ms, End: int64(i+1)*100_000*ms + int64(repeat)*10_000*ms + 2000*ms}}
			}
			if phase == kpi.Fault {
				x.Asked, x.Counters = .2, &fault.Counters{Seen: 1000, Lost: 190 + uint64(repeat)}
			}
			o, at = append(o, x), end
		}
		span(kpi.Control, 0, 50, 5, 0)
		for repeat := range 3 {
			at = int64(i+1)*100_000*ms + int64(repeat+1)*10_000*ms
			span(kpi.Fault, repeat+1, 100, 120, .1)
			span(kpi.Recovery, repeat+1, 60, 6, 0)
		}
	}
	// One that counts for nothing.
	o = append(o, experiment.Observation{Case: "gone", Phase: kpi.Fault, Repeat: 1, Asked: math.NaN(), Void: "the fault kqv1 was lost: the device eth0 is gone"})
	number := func(name string, v float64) []report.Number {
		return []report.Number{{Name: name, Case: "lossy", Phase: kpi.Fault, Value: v}}
	}
	e := report.Experiment{
		Name: name, Question: "what does <packet loss> look like to a client that waits for 500 ms?", Verdict: kpi.Failed, PlanSHA256: report.Hash([]byte(name)), Seed: 7, Repeats: 3,
		Started: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Ended: time.Date(2026, 3, 1, 12, 1, 40, 0, time.UTC),
		Environment: &experiment.Environment{Kernel: "6.18.5", AgentVersion: "v0.1.0", ClientVersion: "v0.1.0", GoVersion: "go1.26.8", Arch: "amd64", CPUs: 2},
		KPIs: []report.KPI{
			{Condition: "p99_ms < 500 in fault", Case: "lossy", Verdict: kpi.Passed, Measured: number("p99_ms", 412.5), Reference: "311 ms"},
			{Condition: "failed - rejected == 5 + events[breaker.half_opened] - events[breaker.closed] in every repeat of a-case-with-a-name-that-is-as-long-as-names-are", Verdict: kpi.Failed, Measured: number("failed", 31), Why: "a breaker lets one through"},
			{Condition: "calls > 0 of gone", Verdict: kpi.Inconclusive, Reason: "the fault was lost", Measured: []report.Number{}},
		},
	}
	e.Contrasts = report.Contrasts(experiment.Contrasts(o))
	e.Phases = report.Phases(o)
	return e, o
}

func folder(t *testing.T, dir, name string) report.Experiment {
	t.Helper()
	e, o := run(name)
	f, err := report.Create(dir, []byte(name), e, report.Machine{}, func(fault.Spec) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range o {
		f.Happened(experiment.Moment{Kind: experiment.MomentCalls, Event: experiment.Began, Case: x.Case, Phase: x.Phase, Repeat: x.Repeat})
		var lines bytes.Buffer
		w := json.NewEncoder(&lines)
		for _, s := range x.Samples {
			if err := w.Encode(s); err != nil {
				t.Fatal(err)
			}
		}
		f.AddSamples(lines.Bytes(), x.Samples, x.Unix)
	}
	if err := f.Finish(e, o, report.Machine{}); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestRunPage: the page of a run, and that the numbers in it are those of result.json and
// samples.jsonl, counted here once more.
func TestRunPage(t *testing.T) {
	browser := start(t)
	dir := t.TempDir()
	e := folder(t, dir, "pg/looks")
	pages := open(browser, t, filepath.Join(dir, report.PageFile))
	phases := phasesOf(t, dir)
	for v, s := range pages {
		// A curve and its axis for each case, and a timeline for each repeat.
		if s.Plots != 2*(1+3) || s.Drawn < 3*s.Plots {
			t.Errorf("%s: %d plots with %d paths", v, s.Plots, s.Drawn)
		}
		for _, k := range e.KPIs {
			found := slices.ContainsFunc(s.Tables[0], func(row []string) bool {
				return strings.Contains(row[0], string(k.Verdict)) && strings.HasPrefix(row[1], k.Condition) && strings.Contains(row[2], k.Words())
			})
			if !found {
				t.Errorf("%s: no row of %s: %v", v, k.Condition, s.Tables[0])
			}
		}
		for i, name := range []string{"lossy", "a-case-with-a-name-that-is-as-long-as-names-are"} {
			for _, row := range s.Tables[1+i][1:] {
				want := phases[name+" "+row[0]]
				if got := [5]string{row[1], row[2], row[3], row[5], row[6]}; got != want {
					t.Errorf("%s: %s %s: %v in the page, %v in the samples", v, name, row[0], got, want)
				}
			}
		}
		if !strings.Contains(s.Text, "the device eth0 is gone") || !strings.Contains(s.Text, "<packet loss>") {
			t.Errorf("%s: what happened is not said", v)
		}
	}
}

// phasesOf counts what the table of a case says, from SamplesFile: calls, ok, and the nearest
// ranks of the good ones.
func phasesOf(t *testing.T, dir string) map[string][5]string {
	t.Helper()
	f, err := os.Open(filepath.Join(dir, report.SamplesFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]int{}
	good := map[string][]float64{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var l struct {
			Case, Phase string
			Class       string
			Start       int64 `json:"start_ns"`
			End         int64 `json:"end_ns"`
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		key := l.Case + " " + l.Phase
		all[key]++
		if l.Class == "ok" {
			good[key] = append(good[key], float64(l.End-l.Start)/1e6)
		}
	}
	out := map[string][5]string{}
	for key, n := range all {
		v := slices.Sorted(slices.Values(good[key]))
		rank := func(p float64) string { return report.Time(&v[int(math.Ceil(p*float64(len(v))))-1]) }
		out[key] = [5]string{strconv.Itoa(n), strconv.Itoa(len(v)), rank(.5), rank(.99), rank(1)}
	}
	return out
}

// TestIndexPage: the page of several experiments, and that its links lead somewhere.
func TestIndexPage(t *testing.T) {
	browser := start(t)
	dir := t.TempDir()
	var all report.Experiments
	for _, name := range []string{"pg/one", "http/two"} {
		all.Experiments = append(all.Experiments, folder(t, filepath.Join(dir, name), name))
	}
	all.Experiments = append(all.Experiments, report.Experiment{Name: "pg/not-yet", Verdict: kpi.Inconclusive, Reason: report.NotEnded})
	if err := report.WriteExperiments(dir, all); err != nil {
		t.Fatal(err)
	}
	for v, s := range open(browser, t, filepath.Join(dir, report.IndexFile)) {
		if !strings.Contains(s.Text, "3 experiments: 0 passed, 2 failed, 1 inconclusive") || len(s.Tables) != 3 || len(s.Tables[0]) != 4 {
			t.Errorf("%s: %d tables, %.200s", v, len(s.Tables), s.Text)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir, report.IndexFile))
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for part := range strings.SplitSeq(string(page), `href="`) {
		if at, _, ok := strings.Cut(part, `"`); ok && strings.HasSuffix(at, ".html") {
			links++
			if _, err := os.Stat(filepath.Join(dir, at)); err != nil {
				t.Error(err)
			}
		}
	}
	if links != 4 {
		t.Errorf("%d links, want 4", links)
	}
}

// TestComparePage: the page of a comparison, and that its numbers are those of result.json.
func TestComparePage(t *testing.T) {
	browser := start(t)
	dir := t.TempDir()
	c := experiment.Comparison{
		Target: "pg", Asked: "loss 20% to pg", Kind: probe.KindPostgres, Calls: "a new connection and one prepared query", Engine: fault.EBPF, EngineReason: "this kernel has no sch_netem",
		Direction: fault.To, Placement: []string{"egress of server in netem-pg-wire"}, Count: 200, Concurrency: 4, TimeoutMS: 5000, Conclusive: true, Reasons: []string{}, Warnings: []string{"seed 7 is not repeated"},
		Environment: experiment.Environment{Kernel: "6.18.5", AgentVersion: "v0.1.0", ClientVersion: "v0.1.0", GoVersion: "go1.26.8", Arch: "amd64", CPUs: 2},
		Started:     time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Ended: time.Date(2026, 3, 1, 12, 0, 52, 0, time.UTC),
	}
	for i, layer := range []string{experiment.LayerNone, experiment.LayerPacket, experiment.LayerProxy, experiment.LayerProxyLatency} {
		samples := calls(uint64(i), 0, 200, []float64{5, 200, 6, 210}[i], []float64{0, .05, 0, 0}[i])
		c.Rows = append(c.Rows, experiment.Row{Summary: probe.Summarize("pg", layer, samples, probe.EvidenceTraced), Fault: layer, Samples: samples})
	}
	if err := report.Comparison(dir, c); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, report.ResultFile))
	if err != nil {
		t.Fatal(err)
	}
	var result struct {
		Data struct {
			Rows []struct {
				Layer    string
				Count    int
				OK       int
				P50, P99 float64
			}
		}
	}
	if err := json.Unmarshal(bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("p50_ms"), []byte("p50")), []byte("p99_ms"), []byte("p99")), &result); err != nil {
		t.Fatal(err)
	}
	for v, s := range open(browser, t, filepath.Join(dir, report.PageFile)) {
		if s.Plots != 1 || s.Drawn < 5 {
			t.Errorf("%s: %d plots with %d paths", v, s.Plots, s.Drawn)
		}
		for i, r := range result.Data.Rows {
			row := s.Tables[0][i+1]
			if want := []string{r.Layer, strconv.Itoa(r.Count), strconv.Itoa(r.OK), report.Time(&r.P50), report.Time(&r.P99)}; !slices.Equal([]string{row[0], row[1], row[2], row[3], row[5]}, want) {
				t.Errorf("%s: %v in the page, %v in the result", v, row, want)
			}
		}
	}
}
