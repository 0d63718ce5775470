package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCountersOfNoService: a condition that asks for a counter which nobody has is refused before
// anything is made.
func TestCountersOfNoService(t *testing.T) {
	for must, want := range map[string]string{
		"server[nobody.hits] > 0":                        `mine: kpis[0].must "server[nobody.hits]": want server[SERVICE.COUNTER] with a service of lab tiers that counts: front, middle, back`,
		"server[fron.hits] > 0":                          "did you mean front?",
		"server[front.hitz] > 0":                         `kpis[0].must "server[front.hitz]": want server[front.COUNTER] with a counter of http-tier: hits, ok,`,
		"server[front.back.calls] > server[middle.rows]": `kpis[0].must "server[middle.rows]"`,
	} {
		plan := filepath.Join(t.TempDir(), "mine.yaml")
		text := "{experiment: mine, version: 1, lab: tiers, load: {probe: http, target: front}, phases: {fault: 10 calls}, kpis: [{must: \"" + must + "\"}]}"
		if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w := world{agent: newFakeAgent()}
		if code := w.run(t.Context(), "run", plan); code != 2 || !strings.Contains(w.stderr.String(), want) {
			t.Errorf("%s: exit code %d\n%s\nwant %s", must, code, w.stderr.String(), want)
		}
		if len(w.agent.labs) > 0 {
			t.Errorf("%s: it made a lab", must)
		}
	}
}

// TestServersOfNoLab: what is wrong with the servers of a plan is told before an agent is asked
// for anything.
func TestServersOfNoLab(t *testing.T) {
	const plan = `experiment: mine
version: 1
lab: tiers
load: {probe: http, target: front}
phases: {fault: 5 calls}
kpis: [{must: "server[back.hits] == 5"}]
`
	for text, wants := range map[string][]string{
		"servers: {front: {work: 2h}}":                           {"servers.front.work", "a time up to 1m"},
		"servers: {frnt: {work: 2s}}":                            {`case all: servers.frnt: service "frnt": want a service of kind http-tier of the lab tiers: front, middle, back`},
		"servers: {front: {upstreams: {u: {at: 'nowhere:80'}}}}": {"servers.front: ", "upstreams.u.at[0]", "nowhere"},
		"cases: {a: {}, b: {servers: {front-http: {}}}}":         {"case b: servers.front-http: "},
		"servers: {front: {upstreams: {u: {at: 'back:80', policy: p}}}}\npolicies: {p: {hedge: {delay: 10ms}}}": {"servers.front.upstreams.u.policy", "method: GET"},
	} {
		file := filepath.Join(t.TempDir(), "mine.yaml")
		if err := os.WriteFile(file, []byte(plan+text), 0o600); err != nil {
			t.Fatal(err)
		}
		w := world{dialErr: errors.New("an agent was asked")}
		code := w.run(t.Context(), "run", file)
		for _, want := range wants {
			if code != exitUsage || !strings.Contains(w.stderr.String(), want) {
				t.Errorf("%s: exit code %d, %s, want %q", text, code, w.stderr.String(), want)
			}
		}
	}
}
