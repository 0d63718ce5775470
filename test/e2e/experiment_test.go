package e2e

import (
	"os"
	"path/filepath"
	"testing"
)

// kindsPlan has a case for each kind of fault but that of all packets, which the shapes are of.
const kindsPlan = `
experiment: kinds
version: 1
lab: echo
seed: 1
repeats: 1
load: {probe: http, target: http, timeout: 3s, concurrency: 2}
phases: {control: 4 calls, fault: 20 calls}
cases:
  drop: {faults: [{drop: {what: syn, count: 1, per_connection: true}}]}
  hold: {faults: [{direction: from, hold: {what: "data:1", time: 200ms}}]}
  request: {load: {layer: app}, faults: [{request: {error: 100% 503}}]}
  process: {load: {pace: 20ms}, phases: {fault: 5s}, faults: [{process: {action: kill, services: web, down: 500ms}, at: 500ms}]}
kpis:
  - {must: ok == calls in control}
  - {must: "ok == calls && phase_p50_ms[connect] >= 1000 of drop"}
  - {must: "ok == calls && p50_ms >= 200 of hold"}
  - {must: "errors[server] == calls of request"}
  - {must: "failed > 0 && ok > 0 of process"}
`

// drawnPlan draws for each connection whether it is reset.
const drawnPlan = `
experiment: drawn
version: 1
lab: echo
seed: 7
repeats: 1
load: {probe: http, target: http, layer: proxy, timeout: 5s, concurrency: 1}
phases: {fault: 60 calls}
faults: [{toxics: "reset_peer timeout=0s toxicity=30%"}]
kpis:
  - {must: "ok > 0 && errors[reset] > 0"}
`

// unmetPlan waits for the thousandth segment of calls that take two.
const unmetPlan = `
experiment: unmet
version: 1
lab: echo
seed: 1
repeats: 1
load: {probe: http, target: http, timeout: 5s, concurrency: 1}
phases: {fault: 5 calls}
faults: [{drop: {what: "data:1000"}}]
kpis:
  - {must: ok == calls}
`

// TestExperimentFaults: each kind of fault in a plan does to calls what it says, what is drawn
// is drawn alike again, and a fault that met nothing leaves its experiment without a verdict.
func TestExperimentFaults(t *testing.T) {
	a := start(t)
	plan := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	out := a.must("run", plan("kinds", kindsPlan))
	t.Log(out.stdout)

	drawn := plan("drawn", drawnPlan)
	first, second := a.must("run", drawn).stdout, a.must("run", drawn).stdout
	if first != second {
		t.Errorf("the same seed gave\n%sand then\n%s", first, second)
	}
	if r := a.ctl("run", plan("unmet", unmetPlan)); r.code != 4 {
		t.Errorf("a fault that met nothing: exit code %d, want 4\n%s%s", r.code, r.stdout, r.stderr)
	}
}
