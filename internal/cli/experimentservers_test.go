package cli

import (
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
