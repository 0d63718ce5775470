package experiment

import (
	"fmt"
	"strings"
	"testing"

	"netemd/internal/kpi"
	"netemd/probe"
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

// TestJudgeShort has what a shorter run leaves open decided by nobody.
func TestJudgeShort(t *testing.T) {
	o := Observation{Case: "a", Phase: kpi.Fault, Repeat: 1, Begin: 1, End: 1 + 1000*msNS}
	for i := range int64(50) {
		o.Samples = append(o.Samples, at(i, 2+i%2, probe.OK))
	}
	p := read(t, `experiment: x
version: 1
load: {target: pg}
phases: {fault: 10 calls}
cases: {a: {}}
kpis:
  - must: success >= 98%
  - must: success >= 50%
  - must: success < 98%
  - must: p99_ms < 5
  - must: p95_ms < 5
  - must: p50_ms < 1
`)
	p.Repeats = 1
	for short, want := range map[bool]string{
		false: "passed passed failed passed passed failed",
		true:  "inconclusive passed inconclusive inconclusive passed failed",
	} {
		p.Short = short
		var got []string
		all := Judge(p, Observations{o})
		for _, j := range all {
			got = append(got, string(j.Verdict))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%v: %s, want %s", short, text, want)
		}
		// Chance makes 50 of 50 of a rate of 85.9 % once in 2,000 runs.
		if why := all[0].Reason; short && why != "success >= 98%: so few cases leave it open: 100% of 50 can be 85.9..100%" {
			t.Error(why)
		}
	}
}
