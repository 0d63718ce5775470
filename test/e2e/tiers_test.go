package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tierPlan has a dependency that is killed, and a server that works for callers that have gone.
const tierPlan = `
experiment: tier
version: 1
lab: tiers
seed: 1
repeats: 1
load: {probe: http, target: front, timeout: 5s, concurrency: 5, pace: 0s}
phases: {fault: 10 calls}
policies:
  leaves: {timeout: {call: 100ms}}
  twice: {retry: {max_attempts: 2}}
servers:
  front: {work: 400ms}
cases:
  leaves: {load: {policy: leaves}}
  back:
    servers: {front: {upstreams: {back: {at: "back:80", policy: twice}}}}
    faults: [{process: {action: kill, services: back, down: 0s}}]
  both: {servers: {front: {upstreams: {u: {at: ["middle:80", "back:80"], balance: round_robin}}}, middle: {status: 500}}}
kpis:
  - {must: "errors[timeout] == 10 && server[front.completed_for_nobody] == 10 of leaves"}
  - {must: "between(server[front.wasted_ms], 4000, 4500) of leaves"}
  - {must: "errors[server] == 10 && server[front.attempts] == 20 && outages == 1 of back"}
  - {must: "ok == 5 && server[middle.hits] == 5 && server[back.hits] == 5 of both"}
`

// TestExperimentTiers: a plan sets the servers of a lab, counts on their side, and leaves them as
// the lab says.
func TestExperimentTiers(t *testing.T) {
	a := start(t)
	file := filepath.Join(t.TempDir(), "tier.yaml")
	if err := os.WriteFile(file, []byte(tierPlan), 0o600); err != nil {
		t.Fatal(err)
	}
	a.must("lab", "up", "tiers")
	before := a.must("lab", "server", "tiers/front").stdout
	t.Log(a.must("run", file).stdout)
	after := a.must("lab", "server", "tiers/front").stdout
	settings := func(s string) string { return s[max(0, strings.Index(s, "upstreams")):] }
	if !strings.Contains(before, "upstreams") || settings(before) != settings(after) {
		t.Errorf("the settings were\n%sand are\n%s", before, after)
	}
	wrong := strings.Replace(tierPlan, "status: 500", "status: 5000", 1)
	if err := os.WriteFile(file, []byte(wrong), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := a.ctl("run", file); r.code != 2 || !strings.Contains(r.stderr, "servers.middle.status") {
		t.Errorf("a status of 5000: exit code %d, %s", r.code, r.stderr)
	}
}
