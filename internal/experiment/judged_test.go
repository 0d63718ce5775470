package experiment

import (
	"fmt"
	"strings"
	"testing"

	"netemd/internal/kpi"
)

func TestJudge(t *testing.T) {
	p := read(t, `experiment: x
version: 1
repeats: 2
load: {target: pg}
phases: {control: 5 calls, fault: 10 calls, recovery: 3 calls}
cases: {a: {}, b: {}}
kpis:
  - must: ok > 0
  - must: calls <= 4 in every repeat of a
  - must: calls <= 3 in every repeat of a
  - must: calls <= 4 of a
  - must: p50_ms(a) > p50_ms(a, control)
`)
	o := observed()
	var got []string
	all := Judge(p, o)
	for _, j := range all {
		got = append(got, fmt.Sprintf("%s [%s] %s %d", j.Text, j.Case, j.Verdict, len(j.Repeats)))
	}
	want := `ok > 0 [a] passed 2
ok > 0 [b] inconclusive 2
calls <= 4 in every repeat of a [] passed 2
calls <= 3 in every repeat of a [] failed 2
calls <= 4 of a [] failed 2
p50_ms(a) > p50_ms(a, control) [] passed 2`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("%s\nwant\n%s", text, want)
	}
	if v := Verdict(all); v != kpi.Failed {
		t.Error(v)
	}
	if v := Verdict(all[:2]); v != kpi.Inconclusive {
		t.Error(v)
	}
	if v := Verdict(all[2:3]); v != kpi.Passed {
		t.Error(v)
	}
	if v := Verdict(nil); v != kpi.Inconclusive {
		t.Error(v)
	}
}
