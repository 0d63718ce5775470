// Package catalogue is the experiments that need no file: plans by their names.
package catalogue

import (
	"embed"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"

	"netemd/internal/experiment/plan"
	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

//go:embed plans
var files embed.FS

// groups are in the order in which they are told.
var groups = []string{"pg", "http", "correctness", "client"}

// order is that of the experiments of each group.
var order = map[string][]string{
	"pg":          {"baseline", "latency-budget", "hang-or-down", "reset-retry", "truncated", "retry-storm", "breaker-recovery", "loss-tail"},
	"http":        {"retry-amplification", "jitter-burst", "breaker", "deadline-waste", "bulkhead", "degradation", "storm", "cascade"},
	"correctness": {"idempotency", "same-key-race", "jitter-statistics", "trace-correlation", "half-open"},
	"client":      {"tcp-modes", "packet-modes", "app-faults", "kill-replica"},
}

var all = sync.OnceValue(func() (plans []plan.Plan) {
	for _, g := range groups {
		for _, name := range order[g] {
			name = g + "/" + name
			text, _ := Text(name)
			p, err := plan.Parse(name+".yaml", text)
			if err != nil {
				panic(fmt.Sprintf("a plan of the catalogue is not valid: %v", err)) // a test has seen all
			}
			plans = append(plans, p)
		}
	}
	return plans
})

// Plans are all experiments, in the order in which they are told.
func Plans() []plan.Plan { return append([]plan.Plan(nil), all()...) }

// Text is the plan of an experiment as its file.
func Text(name string) ([]byte, bool) {
	text, err := files.ReadFile("plans/" + name + ".yaml")
	return text, err == nil
}

// Match finds the experiments that a name or a pattern means ('pg/*', as of path.Match). The
// error is a *qdisc.FieldError of the field "experiment" for none.
func Match(pattern string) ([]plan.Plan, error) {
	var found []plan.Plan
	var names []string
	for _, p := range all() {
		names = append(names, p.Name)
		ok, err := path.Match(pattern, p.Name)
		if errors.Is(err, path.ErrBadPattern) {
			return nil, &qdisc.FieldError{Field: "experiment", Value: pattern, Want: "a name, or a pattern such as 'pg/*'"}
		}
		if ok {
			found = append(found, p)
		}
	}
	if len(found) == 0 {
		want := "one of netemctl catalogue, a pattern such as 'pg/*', or the path of a plan, which ends in .yaml"
		if near := strictyaml.Near(pattern, names); near != "" {
			want += "; did you mean " + near + "?"
		}
		return nil, &qdisc.FieldError{Field: "experiment", Value: pattern, Want: want}
	}
	return found, nil
}

// IsFile reports whether a word of the command line is the path of a plan.
func IsFile(word string) bool {
	return strings.HasSuffix(word, ".yaml") || strings.HasSuffix(word, ".yml") || strings.HasPrefix(word, "./") || path.IsAbs(word)
}
