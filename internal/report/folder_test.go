package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/probe"
)

// recordedRun is the folder of a run up to before its end: each phase's calls come a few at a time.
func recordedRun(t *testing.T, dir string, e Experiment, o experiment.Observations) *Folder {
	t.Helper()
	before := e
	before.Ended, before.Phases = time.Time{}, nil
	f, err := Create(dir, []byte("plan"), before, Machine{Kernel: "6.18.5", CPUs: 2}, func(s fault.Spec) string { return "loss 20% to " + s.Target })
	if err != nil {
		t.Fatal(err)
	}
	at := e.Started
	for _, x := range o {
		f.Happened(experiment.Moment{Time: at, Kind: experiment.MomentCalls, Event: experiment.Began, Case: x.Case, Phase: x.Phase, Repeat: x.Repeat})
		for part := range slices.Chunk(x.Samples, 7) {
			f.AddSamples(asLines(t, part), part, x.Unix)
		}
		f.Happened(experiment.Moment{Time: at, Kind: experiment.MomentPhase, Event: experiment.Ended, Case: x.Case, Phase: x.Phase, Repeat: x.Repeat, Observed: &x})
	}
	return f
}

func asLines(t *testing.T, samples []probe.Sample) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, s := range samples {
		line, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	return b.Bytes()
}

// numbered is ran with the calls numbered, as a probe does.
func numbered() (Experiment, experiment.Observations) {
	e, o := ran()
	for i := range o {
		o[i].Unix = 1000 * time.Second
		for j := range o[i].Samples {
			o[i].Samples[j].Seq = j
		}
	}
	e.Cases = []Case{{Name: "lossy", Probe: "http", Target: "web", Layer: "direct"}}
	e.Phases = Phases(o)
	return e, o
}

func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name()] = string(text)
	}
	return out
}

// TestFolderAgain: what is read from a folder is what was measured, and what is made of it again
// is the same to the byte.
func TestFolderAgain(t *testing.T) {
	e, o := numbered()
	dir := t.TempDir()
	f := recordedRun(t, dir, e, o)
	f.AddEvent(experiment.Event{Time: time.Unix(1001, 0), Event: "applied", Fault: "f1", Target: "web", Asked: "loss 20% to web", Engine: "ebpf"})
	f.AddEvent(experiment.Event{Time: time.Unix(1002, 0), Event: "cleared", Fault: "f1", Target: "web", Asked: "loss 20% to web", Engine: "ebpf"})
	if err := f.Finish(e, o, Machine{Kernel: "6.18.5"}); err != nil {
		t.Fatal(err)
	}
	written := contents(t, dir)
	runs, err := Open(dir)
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	if diff := cmp.Diff(o, runs[0].Observations, cmpopts.EquateNaNs(), cmpopts.EquateComparable(probe.Sample{}.Local), cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	if runs[0].Unended() || runs[0].Machine.Kernel != "6.18.5" || string(runs[0].Plan) != "plan" {
		t.Errorf("%+v", runs[0])
	}
	for _, name := range []string{PageFile, JUnitFile, TracesFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := runs[0].Derive(dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(written, contents(t, dir)); diff != "" {
		t.Error(diff)
	}
}

// TestFolderKilled: a folder that nobody finished is read at each moment, a torn line is left
// out, and the result says that the run did not end.
func TestFolderKilled(t *testing.T) {
	e, o := numbered()
	dir := t.TempDir()
	recordedRun(t, dir, e, o[:2]) // killed in the recovery
	samples := filepath.Join(dir, SamplesFile)
	last := o[2]
	f, err := os.OpenFile(samples, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, s := range last.Samples[:3] {
		line, err := json.Marshal(observationLine{place{last.Case, last.Phase, last.Repeat}, s})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(append(line, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	for _, torn := range []string{"", `{"case":"lossy","phase":"recovery","repeat":1,"seq":3,"start_`} {
		if _, err := f.WriteString(torn); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, EventsFile), []byte(`{"unix_ns":1000000000000,"kind":"run","event":"began"}`+"\n"+torn), 0o600); err != nil {
			t.Fatal(err)
		}
		runs, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		r := runs[0]
		if !r.Unended() || r.Verdict != kpi.Inconclusive || r.PlanSHA256 != Hash([]byte("plan")) || len(r.KPIs) != len(e.KPIs) {
			t.Errorf("%+v", r.Experiment)
		}
		for _, k := range r.KPIs {
			if k.Verdict != kpi.Inconclusive || k.Reason != "the run did not end" {
				t.Errorf("%+v", k)
			}
		}
		if len(r.Events) != 1 {
			t.Errorf("%d events", len(r.Events))
		}
		var got []string
		for _, x := range r.Observations {
			got = append(got, strings.Join([]string{x.Case, x.Phase, Figure(float64(len(x.Samples))), x.Void}, " "))
		}
		if diff := cmp.Diff([]string{"lossy control 50 ", "lossy fault 51 ", "lossy recovery 3 the run ended in it"}, got); diff != "" {
			t.Error(diff)
		}
		if err := r.Derive(dir); err != nil {
			t.Error(err)
		}
		page, err := os.ReadFile(filepath.Join(dir, PageFile))
		if err != nil || !strings.Contains(string(page), NotEnded) || !strings.Contains(string(page), "the run ended in it") {
			t.Errorf("the page does not say so: %v", err)
		}
	}
	if _, err := f.WriteString("\n{}\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), "samples.jsonl: line 105") {
		t.Errorf("a broken line between others: %v", err)
	}
}

// TestFolderOfAllPhases: the calls of a run that went through several phases are told apart at
// its end, and those of none stay.
func TestFolderOfAllPhases(t *testing.T) {
	e, o := numbered()
	o = slices.Clone(o[1:3]) // fault from 1000 to 2000 ms, recovery from 3000
	e.Phases = Phases(o)
	between := probe.Sample{Seq: 51, StartNS: 2500 * msNS, EndNS: 2600 * msNS, Class: probe.OK}
	dir := t.TempDir()
	f := recordedRun(t, dir, e, nil)
	f.Happened(experiment.Moment{Kind: experiment.MomentCalls, Case: "lossy", Phase: experiment.AllPhases, Repeat: 1})
	all := slices.Concat(o[0].Samples, []probe.Sample{between})
	for i, s := range o[1].Samples {
		o[1].Samples[i].Seq = 52 + i
		s.Seq = 52 + i
		all = append(all, s)
	}
	f.AddSamples(asLines(t, all), all, 0)
	killed, err := Open(dir)
	if err != nil || len(killed[0].Observations) != 1 || killed[0].Observations[0].Phase != experiment.AllPhases {
		t.Fatalf("before its end: %d observations, %v", len(killed[0].Observations), err)
	}
	for _, x := range o {
		f.Happened(experiment.Moment{Kind: experiment.MomentPhase, Event: experiment.Ended, Observed: &x})
	}
	for _, finished := range []bool{false, true} {
		if finished {
			if err := f.Finish(e, o, Machine{}); err != nil {
				t.Fatal(err)
			}
		}
		runs, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o, runs[0].Observations, cmpopts.EquateNaNs(), cmpopts.EquateComparable(probe.Sample{}.Local), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("finished %v: %s", finished, diff)
		}
	}
	count := map[string]int{}
	if err := readLines(dir, SamplesFile, func(line []byte) error {
		var l observationLine
		err := json.Unmarshal(line, &l)
		count[l.Phase]++
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{kpi.Fault: 51, kpi.Recovery: 50, noPhase: 1}, count); diff != "" {
		t.Error(diff)
	}
}

// TestHappenings: what a run, its faults, its servers and policies do is one line each, on one
// clock.
func TestHappenings(t *testing.T) {
	e, o := numbered()
	dir := t.TempDir()
	f := recordedRun(t, dir, e, nil)
	f.Happened(experiment.Moment{Time: time.Unix(1001, 0), Kind: experiment.MomentServers, Event: experiment.Set, Case: "lossy", Service: "web", Settings: []byte("status: 503\n")})
	f.Happened(experiment.Moment{Time: time.Unix(1002, 0), Kind: experiment.MomentFault, Event: experiment.Asked, Case: "lossy", Repeat: 1, Spec: &fault.Spec{Target: "web"}})
	f.AddEvent(experiment.Event{Time: time.Unix(1003, 0), Event: "applied", Fault: "f1", Asked: "loss 20% to web"}) // before the first call
	f.Happened(experiment.Moment{Time: time.Unix(1003, 5e8), Kind: experiment.MomentCalls, Event: experiment.Began, Case: "lossy", Phase: kpi.Fault, Repeat: 1})
	call := o[1].Samples[len(o[1].Samples)-1]
	call.Attempts = []probe.Sample{{Policy: []probe.PolicyEvent{{TimeNS: 1600 * msNS, Policy: "budget", Event: "rejected", Attempt: 2}, {TimeNS: 1601 * msNS, Policy: "retry", Event: "scheduled"}}}}
	f.AddSamples(asLines(t, []probe.Sample{call}), []probe.Sample{call}, o[1].Unix)
	f.Happened(experiment.Moment{Kind: experiment.MomentPhase, Event: experiment.Ended, Case: "lossy", Phase: kpi.Fault, Repeat: 1, Observed: &o[1]})
	if err := f.Finish(e, o, Machine{}); err != nil {
		t.Fatal(err)
	}
	all, err := OpenEvents(dir)
	if err != nil {
		t.Fatal(err)
	}
	seq := call.Seq
	want := []Happening{
		{UnixNS: 1000e9, Kind: "run", Event: "began"},
		{UnixNS: 1001e9, Kind: "servers", Event: "set", Case: "lossy", Service: "web", Settings: "status: 503"},
		{UnixNS: 1002e9, Kind: "fault", Event: "asked", Case: "lossy", Repeat: 1, Target: "web", Asked: "loss 20% to web"},
		{UnixNS: 1003.5e9, Kind: "calls", Event: "began", Case: "lossy", Phase: "fault", Repeat: 1},
		{UnixNS: 1003e9, TimeNS: 3e9, Kind: "fault", Event: "applied", Fault: "f1", Asked: "loss 20% to web"},
		{UnixNS: 1001.5e9, TimeNS: 1.5e9, Kind: "policy", Event: "opened", Case: "lossy", Phase: "fault", Repeat: 1, Policy: "breaker", Seq: &seq},
		{UnixNS: 1001.6e9, TimeNS: 1.6e9, Kind: "policy", Event: "rejected", Case: "lossy", Phase: "fault", Repeat: 1, Policy: "budget", Seq: &seq, Attempt: 2},
		{UnixNS: 1002e9, TimeNS: 2e9, BeginUnixNS: 1001e9, Kind: "phase", Event: "ended", Case: "lossy", Phase: "fault", Repeat: 1, Calls: 51},
		{UnixNS: 1012.5e9, Kind: "run", Event: "ended"},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
}
