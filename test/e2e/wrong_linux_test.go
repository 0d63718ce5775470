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
// of an experiment of the catalogue. They fail at the conditions that are about it, and at no others.
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
			for plan, want := range map[string]verdict{
				w.plan: {code: 0},
				file:   {code: 3, fails: w.fails},
			} {
				r := a.ctl("run", "--quick", "-o", "json", plan)
				got := verdict{code: r.code}
				for _, e := range data[report.Experiments](t, r, "run").Experiments {
					got.fails = append(got.fails, unmet(e.KPIs)...)
				}
				if d := cmp.Diff(want, got, cmp.AllowUnexported(verdict{})); d != "" {
					t.Errorf("%s (-want +got):\n%s\n%s%s", plan, d, r.stdout, r.stderr)
				}
			}
		})
	}
}

// verdict is the exit code of a run, and the conditions that did not hold.
type verdict struct {
	code  int
	fails []string
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
