package plan

import (
	"fmt"
	"slices"
	"strings"

	"netemd/internal/kpi"
	"netemd/internal/strictyaml"
	"netemd/probe"
	"netemd/probe/policy"
)

// selectors are the words that may stand in the brackets of metrics, by kpi.Metric.Kinds. Of other
// kinds any may: tests have the names that their authors gave them.
var selectors = map[string][]string{
	"class": texts(probe.Failures()),
	"cause": texts(probe.Causes()),
	"part":  probe.PhaseNames(),
	"event": policy.Events(),
}

func texts[S ~string](all []S) (out []string) {
	for _, s := range all {
		out = append(out, string(s))
	}
	return out
}

// selector refuses what stands in the brackets of a metric and would never be anything but 0.
func (r *reader) selector(key string, p Plan, ref kpi.Ref) {
	i := slices.IndexFunc(kpi.Metrics, func(m kpi.Metric) bool { return m.Name == ref.Metric })
	kinds := kpi.Metrics[i].Kinds
	written := fmt.Sprintf("%s[%s]", ref.Metric, ref.Kind)
	if known, closed := selectors[kinds]; closed && !slices.Contains(known, ref.Kind) {
		want := fmt.Sprintf("%s[%s] with one of: %s", ref.Metric, kinds, strings.Join(known, ", "))
		if near := strictyaml.Near(ref.Kind, known); near != "" {
			want += fmt.Sprintf("; did you mean %s[%s]?", ref.Metric, near)
		}
		r.refuse(key, written, want)
	}
	if kinds != "counter" {
		return
	}
	service, counter, _ := strings.Cut(ref.Kind, ".")
	switch {
	case service == "" || counter == "":
		r.refuse(key, written, "server[SERVICE.COUNTER], such as server[front.hits]")
	case p.Lab == "":
		r.refuse(key, written, "the plan's lab beside it, whose services count")
	}
}
