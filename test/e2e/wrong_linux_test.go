package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/catalogue"
	"netemd/internal/kpi"
	"netemd/internal/report"
)

// wrongClients are clients that somebody wrote, each with one mistake: it is a change to the plan
// of an experiment of the catalogue. They fail at the conditions that are about it, which hold of the right one.
var wrongClients = []struct {
	mistake, plan string
	right, wrong  string
	fails         []string
}{
	{
		mistake: "jitter is forgotten", plan: "correctness/jitter-statistics",
		right: "backoff: full_jitter", wrong: "backoff: exponential",
		fails: []string{
			"uniform(retry_delay[1], 0s, 1s) in every repeat of jitter",
			"uniform(retry_delay[2], 0s, 2s) in every repeat of jitter",
			"uniform(retry_delay[3], 0s, 4s) in every repeat of jitter",
			"dispersion[100ms] < 10 in every repeat of jitter",
		},
	},
	{
		mistake: "an answer that was cut off is asked for again", plan: "pg/truncated",
		right: ", on: [timeout, refused, reset]", wrong: "",
		fails: []string{"attempts == calls of classified"},
	},
	{
		mistake: "each attempt has a new key", plan: "correctness/idempotency",
		right: "{key: per_call}", wrong: "{key: per_attempt}",
		fails: []string{
			"server[api.rows] == 1 in every repeat of closed",
			"server[api.rows] == 1 in every repeat of truncated",
			"server[api.rows] == 1 in every repeat of status",
			"ok == 1 && replays == 1 && attempts == 3 in every repeat of closed",
			"ok == 1 && replays == 1 && attempts == 3 in every repeat of truncated",
			"ok == 1 && replays == 1 && attempts == 3 in every repeat of status",
		},
	},
	{
		mistake: "the deadline is not passed on", plan: "http/deadline-waste",
		right: "tells: {timeout: {call: 100ms}, deadline: {}}", wrong: "tells: {timeout: {call: 100ms}}",
		fails: []string{
			"server[front.completed_for_nobody] == 0 in every repeat of deadline",
			"server[front.late_ms](deadline) < 5% * server[front.wasted_ms](silent) in every repeat",
			"server[front.work_ms] <= 12500 in every repeat of deadline",
		},
	},
}

// TestWrongClients: an experiment passes with the client that it is of, and fails with one that
// makes a mistake.
func TestWrongClients(t *testing.T) {
	a := start(t)
	for _, w := range wrongClients {
		t.Run(w.mistake, func(t *testing.T) {
			text, ok := catalogue.Text(w.plan)
			if !ok || strings.Count(string(text), w.right) != 1 {
				t.Fatalf("%s: want one %q in\n%s", w.plan, w.right, text)
			}
			file := filepath.Join(t.TempDir(), "wrong.yaml")
			if err := os.WriteFile(file, []byte(strings.Replace(string(text), w.right, w.wrong, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			for plan, want := range map[string][]string{w.plan: nil, file: w.fails} {
				r := a.ctl("run", "--quick", "-o", "json", plan)
				var got []string
				for _, e := range data[report.Experiments](t, r, "run").Experiments {
					for _, condition := range unmet(e.KPIs) {
						if slices.Contains(w.fails, condition) {
							got = append(got, condition)
						} else { // about the server, or how busy the machine is
							t.Logf("%s: beside what the mistake is about: %s", plan, condition)
						}
					}
				}
				if d := cmp.Diff(want, got); d != "" || want != nil && r.code != 3 {
					t.Errorf("%s: exit code %d (-want +got):\n%s\n%s%s", plan, r.code, d, r.stdout, r.stderr)
				}
			}
		})
	}
}

// unmet are the conditions that did not hold, each once.
func unmet(all []report.KPI) (out []string) {
	for _, k := range all {
		text := k.Condition
		if k.Verdict == kpi.Inconclusive {
			text += ": " + k.Reason
		}
		if k.Verdict != kpi.Passed && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}
