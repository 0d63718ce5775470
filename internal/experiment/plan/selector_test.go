package plan

import (
	"strings"
	"testing"

	"netemd/internal/kpi"
)

// asking is a plan with one condition.
func asking(lab, must string) []byte {
	return []byte("{experiment: x, version: 1, " + lab + "load: {probe: http, target: http}, phases: {fault: 10 calls}, kpis: [{must: \"" + must + "\"}]}")
}

// TestSelectors: what stands in brackets is something that can be counted.
func TestSelectors(t *testing.T) {
	for must, want := range map[string]string{
		"errors[timeout] == 0 && errors[rejected] == 0": "",
		"causes[rto] + causes[unknown] == 0":            "",
		"phase_p50_ms[first_byte] < 5":                  "",
		"events[breaker.half_opened] == 1":              "",
		"errors[bogus] == 0":                            `kpis[0].must: "errors[bogus]" is not valid, want errors[class] with one of: timeout, refused,`,
		"errors[timout] == 0":                           "did you mean errors[timeout]?",
		"errors[ok] == 0":                               `"errors[ok]" is not valid`,
		"causes[bogus] == 0":                            `kpis[0].must: "causes[bogus]" is not valid, want causes[cause] with one of: rto,`,
		"phase_p50_ms[conect] < 5":                      "did you mean phase_p50_ms[connect]?",
		"events[breaker] == 1":                          `"events[breaker]" is not valid, want events[event] with one of: timeout.fired,`,
		"events[breaker.half_open] == 1":                "did you mean events[breaker.half_opened]?",
		"server[hits] == 1":                             `kpis[0].must: "server[hits]" is not valid, want server[SERVICE.COUNTER]`,
		"server[front.hits] == 1":                       `"server[front.hits]" is not valid, want the plan's lab beside it`,
	} {
		_, err := Parse("x.yaml", asking("", must))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v\nwant %s", must, err, want)
		}
	}
	p, err := Parse("x.yaml", asking("lab: tiers, ", "server[front.hits] + server[front.hits] == server[front.ok] + server[back.hits]"))
	if c := p.Counters(); err != nil || len(c) != 2 || strings.Join(c["front"], " ") != "hits ok" || strings.Join(c["back"], " ") != "hits" {
		t.Errorf("counters %v, %v", c, err)
	}
}

// TestSelectorKinds: each kind of brackets is one that is checked somewhere.
func TestSelectorKinds(t *testing.T) {
	elsewhere := map[string]bool{"": true, "width": true, "retry": true, "name": true, "counter": true}
	for _, m := range kpi.Metrics {
		if _, ok := selectors[m.Kinds]; !ok && !elsewhere[m.Kinds] {
			t.Errorf("%s[%s] is not checked", m.Name, m.Kinds)
		}
	}
}
