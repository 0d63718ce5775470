package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/probe"
)

// TestLoadFlags: what a command line asks for is what the agent gets.
func TestLoadFlags(t *testing.T) {
	s := time.Second
	open := func(stages ...probe.Stage) *probe.OpenLoop {
		return &probe.OpenLoop{Stages: stages, MaxInFlight: probe.DefaultMaxInFlight}
	}
	for line, want := range map[string]probe.Request{
		"":                             {Count: 200, Concurrency: 4, Pace: 60 * time.Millisecond},
		"--duration 5s --pace 0s":      {Duration: 5 * s, Concurrency: 4, Pace: probe.NoPace},
		"--duration 5s -n 9":           {Duration: 5 * s, Count: 9, Concurrency: 4, Pace: 60 * time.Millisecond},
		"--rate 100":                   {Count: 200, Open: open(probe.Stage{From: 100, To: 100})},
		"--rate 0.5/s --duration 5s":   {Duration: 5 * s, Open: open(probe.Stage{From: 0.5, To: 0.5})},
		"--ramp 10..500/30s":           {Open: open(probe.Stage{For: 30 * s, From: 10, To: 500})},
		"--ramp 0..5/2s --duration 5s": {Duration: 5 * s, Open: open(probe.Stage{For: 2 * s, To: 5})},
		"--rate 10 --duration 20s --spike 50/1s@15s --spike 1000/2s@0s": {Duration: 20 * s, Open: open(
			probe.Stage{For: 2 * s, From: 1000, To: 1000}, probe.Stage{For: 13 * s, From: 10, To: 10},
			probe.Stage{For: s, From: 50, To: 50}, probe.Stage{From: 10, To: 10})},
		"--rate 10 --duration 9s --arrival poisson --max-in-flight 3 --seed 4 --warmup 1s --slow 1s": {
			Duration: 9 * s, Warmup: s, Seed: 4, Threshold: s,
			Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 10, To: 10}}, Poisson: true, MaxInFlight: 3}},
	} {
		w := world{agent: newFakeAgent()}
		if code := w.run(t.Context(), append(strings.Fields("probe tcp --target pg"), strings.Fields(line)...)...); code != exitDone {
			t.Errorf("%s: exit code %d, %s", line, code, w.stderr.String())
			continue
		}
		want.TCP.Mode, want.Target = "connect", "pg"
		want.Kind = probe.KindTCP
		if d := cmp.Diff(want.WithDefaults(), w.agent.request); d != "" {
			t.Errorf("%s (-want +asked):\n%s", line, d)
		}
	}
}

// TestLoadFlagsRefused: a mistake is exit code 2, and nothing is measured.
func TestLoadFlagsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"--rate 0":                 "above 0",
		"--rate 100001":            "up to 100000",
		"--rate -1":                "calls a second",
		"--rate 1e3":               "calls a second",
		"--ramp 10..500":           "10..500/30s",
		"--ramp 10/5s":             "10..500/30s",
		"--spike 10/1s@1s":         "of an open loop",
		"--rate 1 --spike 10/1s":   "1000/2s@10s",
		"--rate 1 --ramp 1..2/3s":  "leave --rate and --spike out",
		"--rate 1 --concurrency 2": "of a closed loop",
		"--rate 1 --pace 1s":       "of a closed loop",
		"--arrival poisson":        "of an open loop",
		"--rate 1 --spike 1/5s@1s --spike 2/1s@2s": "before the one before has ended",
		"--duration 2s --warmup 2s":                "less than",
		"--duration 0s":                            "above 0s",
		"--seed 0":                                 "from 1",
		"--policy nosuch":                          "built-in policy",
		"--mode nonsense":                          "connect, echo, bulk or download",
		"--mode echo --bytes 0B":                   "from 1B",
		"--keep":                                   "keep",
	} {
		w := world{agent: newFakeAgent()}
		w.agent.during = func() { t.Errorf("%s measured", line) }
		code := w.run(t.Context(), append(strings.Fields("probe tcp --target pg"), strings.Fields(line)...)...)
		if code != exitUsage || !strings.Contains(w.stderr.String(), want) {
			t.Errorf("%s: exit code %d, %q; want 2 and %q", line, code, w.stderr.String(), want)
		}
	}
}

func TestProbeLine(t *testing.T) {
	at := probe.Progress{Done: 50, Failed: 2, Count: 200, Elapsed: 4 * time.Second, P50: new(1.2), P99: new(221.0)}
	for want, r := range map[string]probe.Request{
		"probing pg  50/200 calls  12.5/s  2 failed  4s, about 12s left  p50 1.2 ms  p99 221 ms": {Target: "pg", Count: 200},
		"probing pg  50 calls  12.5/s  2 failed  4s of 30s  p50 1.2 ms  p99 221 ms":              {Target: "pg", Duration: 30 * time.Second},
	} {
		if got := probeLine(r, at); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}
