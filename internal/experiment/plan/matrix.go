package plan

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

// matrix is the one thing that varies, and its values: each case is there once with each.
type matrix struct {
	Timeout     []time.Duration `yaml:"load.timeout,omitempty" want:"times, such as [200ms, 500ms, 1s]"`
	Rate        []rate          `yaml:"load.rate,omitempty"`
	Concurrency []int           `yaml:"load.concurrency,omitempty" want:"numbers of calls at a time, such as [1, 10, 100]"`
	Policy      []string        `yaml:"load.policy,omitempty" want:"client policies, such as [none, jitter]"`
	Bytes       []qdisc.Bytes   `yaml:"load.bytes,omitempty"`
	Loss        []qdisc.Percent `yaml:"impairment.loss,omitempty"`
	Delay       []time.Duration `yaml:"impairment.delay,omitempty" want:"times, such as [10ms, 100ms]"`
}

// WantYAML is the form, after "want".
func (matrix) WantYAML() string {
	return "one of the keys with a list of values, such as {load.timeout: [200ms, 500ms, 1s]}"
}

// variation is one value of what varies.
type variation struct {
	label string
	// set gives it to a case; it reports whether the case has what varies.
	set func(*caseKeys) bool
}

func vary[T any](values []T, label func(T) string, set func(*caseKeys, T) bool) (all []variation) {
	for _, v := range values {
		all = append(all, variation{label(v), func(c *caseKeys) bool { return set(c, v) }})
	}
	return all
}

// variations are those of each key that is said.
func (m matrix) variations() map[string][]variation {
	duration := qdisc.FormatDuration
	all := map[string][]variation{
		"load.timeout":     vary(m.Timeout, duration, func(c *caseKeys, v time.Duration) bool { c.Load.Timeout = v; return true }),
		"load.rate":        vary(m.Rate, func(v rate) string { return strconv.FormatFloat(float64(v), 'g', -1, 64) }, func(c *caseKeys, v rate) bool { c.Load.Rate = v; return true }),
		"load.concurrency": vary(m.Concurrency, strconv.Itoa, func(c *caseKeys, v int) bool { c.Load.Concurrency = v; return true }),
		"load.policy":      vary(m.Policy, func(v string) string { return v }, func(c *caseKeys, v string) bool { c.Load.Policy = v; return true }),
		"load.bytes":       vary(m.Bytes, func(v qdisc.Bytes) string { return v.String() }, func(c *caseKeys, v qdisc.Bytes) bool { c.Load.Bytes = v; return true }),
		"impairment.loss":  vary(m.Loss, func(v qdisc.Percent) string { return v.String() }, func(c *caseKeys, v qdisc.Percent) bool { return c.impair(func(f *timed) { f.Impairment.Loss = v }) }),
		"impairment.delay": vary(m.Delay, duration, func(c *caseKeys, v time.Duration) bool { return c.impair(func(f *timed) { f.Impairment.Delay = v }) }),
	}
	for key, values := range all {
		if values == nil {
			delete(all, key)
		}
	}
	return all
}

// impair changes a copy of each impairment of a case.
func (c *caseKeys) impair(change func(*timed)) (found bool) {
	c.Faults = slices.Clone(c.Faults)
	for i := range c.Faults {
		if f := &c.Faults[i]; f.Impairment != nil {
			f.Impairment = new(*f.Impairment)
			change(f)
			found = true
		}
	}
	return found
}

// varied are the cases, each once with each value of what varies: NAME-VALUE, and VALUE where
// the plan names no case. key is where the file has it.
func (r *reader) varied() (all []keyedCase) {
	for _, c := range r.Cases {
		all = append(all, keyedCase{key: strictyaml.Key("cases", c.Name), name: c.Name, keys: c.Value})
	}
	if len(all) == 0 {
		all = []keyedCase{{name: only}}
	}
	if r.Matrix == nil {
		return all
	}
	said := r.Matrix.variations()
	if len(said) != 1 {
		r.refuse("matrix", "", matrix{}.WantYAML())
		return all
	}
	var out []keyedCase
	for key, values := range said {
		for _, c := range all {
			for i, v := range values {
				made := c
				if made.name = v.label; len(r.Cases) > 0 {
					made.name = c.name + "-" + v.label
				}
				if made.keys.Faults == nil {
					made.keys.Faults = r.Faults
				}
				at := fmt.Sprintf("matrix.%s[%d]", key, i)
				switch {
				case !v.set(&made.keys):
					r.refuse("matrix."+key, "", "a fault with an impairment in each case")
					return all
				case slices.ContainsFunc(out, func(o keyedCase) bool { return o.name == made.name }):
					r.refuse(at, v.label, "a value that no other case has")
				}
				out = append(out, made)
			}
		}
	}
	return out
}

// keyedCase is a case and where the file says it; the key is empty for the plan itself.
type keyedCase struct {
	key, name string
	keys      caseKeys
}
