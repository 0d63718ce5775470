package experiment

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"netemd/internal/kpi"
	"netemd/probe"
)

// Every repeat taken together.
const together = -1

// numbers looks up what was measured. It makes the summary of the same calls once; it is not
// safe for concurrent use.
type numbers struct {
	observations Observations
	// short says that the run was made shorter than its plan.
	short  bool
	groups map[groupKey]*group
}

// groupKey is whose calls a summary is of; the ref has no metric.
type groupKey struct {
	kpi.Ref
	repeat int
}

// group is the same phase of one repeat or of several.
type group struct {
	of       Observations
	err      error
	recorder *probe.Recorder
	calls    probe.Summary
}

func newNumbers(o Observations) *numbers {
	return &numbers{observations: o, groups: map[groupKey]*group{}}
}

// in looks numbers up in one repeat, or in all of them taken together for -1. Of several
// repeats, counts are summed, rates, percentiles and pauses are of all calls, peaks and
// dispersions are the median of the repeats', and recovery is the slowest one.
func (n *numbers) in(repeat int) kpi.Measured {
	return func(r kpi.Ref) (kpi.Value, error) {
		g := n.group(r, repeat)
		if g.err != nil {
			return kpi.Value{}, g.err
		}
		v, err := g.value(r)
		if n.short && err == nil {
			err = g.few(r.Metric)
			v.Short = true
		}
		return v, err
	}
}

// few refuses percentiles of so few calls that they are no more than the largest.
func (g *group) few(metric string) error {
	least := map[string]int{"p90_ms": 10, "p95_ms": 20, "p99_ms": 100}[metric]
	if good := g.calls.OK - g.calls.Degraded; good < least {
		return fmt.Errorf("%d good calls have none that is not their largest, want %d", good, least)
	}
	return nil
}

func (n *numbers) group(r kpi.Ref, repeat int) *group {
	r.Metric, r.Kind = "", ""
	key := groupKey{r, repeat}
	if n.groups[key] == nil {
		n.groups[key] = n.observations.group(r, repeat)
	}
	return n.groups[key]
}

func (o Observations) group(r kpi.Ref, repeat int) *group {
	g := &group{recorder: probe.NewRecorder("", "", probe.SlowThreshold)}
	for _, x := range o {
		if r.Case != "" && x.Case != r.Case || x.Phase != r.Phase || x.Repeat != 0 && repeat != together && x.Repeat != repeat {
			continue
		}
		if x.Void != "" {
			g.err = fmt.Errorf("%s: %s", x.name(), x.Void)
			return g
		}
		x = x.part(r.After, r.Within)
		for _, s := range x.Samples {
			g.recorder.Add(s)
		}
		g.of = append(g.of, x)
	}
	if len(g.of) == 0 {
		g.err = fmt.Errorf("the phase %s was not measured", r.Phase)
	}
	g.calls = g.recorder.Summary("")
	return g
}

// value is one number of the group.
func (g *group) value(r kpi.Ref) (kpi.Value, error) {
	if g.silent() && !slices.Contains(kpi.OfCommands, r.Metric) && !slices.Contains([]string{"packets", "measured", "asked", "server"}, r.Metric) {
		return kpi.Value{}, errors.New("no calls were made beside the command")
	}
	if of, ok := ofCalls[r.Metric]; ok {
		return of(g.calls, r.Kind)
	}
	switch r.Metric {
	case "command", "tests_run", "tests_failed", "tests":
		return g.of.command(r)
	case "attempts_peak", "retries_peak", "retries_mean", "dispersion":
		width, err := time.ParseDuration(r.Kind)
		if err != nil {
			return kpi.Value{}, err
		}
		return g.of.median(func(x Observation) (float64, error) { return x.burst(r.Metric, width) })
	case "marked":
		return g.of.marked()
	case "retry_delay":
		return g.of.delays(r.Kind)
	case "retries_outside":
		return number(g.of.outside())
	case "failed_p50_ms", "failed_max_ms":
		p50, longest := g.recorder.FailedService()
		if r.Metric == "failed_p50_ms" {
			return known(p50)
		}
		return known(longest)
	case "recovery_ms":
		return g.of.slowest()
	case "packets", "measured", "asked":
		return g.of.packets(r.Metric)
	case "throughput":
		return g.of.throughput()
	case "outages", "outages_at_once":
		return g.of.outages(r)
	case "server":
		return g.of.server(r)
	}
	return kpi.Value{}, fmt.Errorf("no metric %s: %w", r.Metric, errors.ErrUnsupported)
}

// silent reports that a command ran, and no calls beside it.
func (g *group) silent() bool {
	return !slices.ContainsFunc(g.of, func(x Observation) bool { return x.Command == nil || len(x.Samples) > 0 })
}

// ofCalls are the numbers that stand in the calls' own summary.
var ofCalls = map[string]func(s probe.Summary, kind string) (kpi.Value, error){
	"calls":           func(s probe.Summary, _ string) (kpi.Value, error) { return number(s.Count) },
	"ok":              func(s probe.Summary, _ string) (kpi.Value, error) { return number(s.OK) },
	"success":         func(s probe.Summary, _ string) (kpi.Value, error) { return kpi.Rate(s.OK, s.Count), nil },
	"failed":          func(s probe.Summary, _ string) (kpi.Value, error) { return number(s.Count - s.OK) },
	"errors":          func(s probe.Summary, kind string) (kpi.Value, error) { return number(s.Errors[probe.Class(kind)]) },
	"rejected":        func(s probe.Summary, _ string) (kpi.Value, error) { return number(s.Rejected) },
	"degraded":        func(s probe.Summary, _ string) (kpi.Value, error) { return number(s.Degraded) },
	"replays":         func(s probe.Summary, _ string) (kpi.Value, error) { return number(s.Replays) },
	"attempts":        func(s probe.Summary, _ string) (kpi.Value, error) { return number(s.Attempts) },
	"retries":         func(s probe.Summary, _ string) (kpi.Value, error) { return number(s.Attempts - (s.Count - s.Rejected)) },
	"p50_ms":          func(s probe.Summary, _ string) (kpi.Value, error) { return known(s.P50) },
	"p90_ms":          func(s probe.Summary, _ string) (kpi.Value, error) { return known(s.P90) },
	"p95_ms":          func(s probe.Summary, _ string) (kpi.Value, error) { return known(s.P95) },
	"p99_ms":          func(s probe.Summary, _ string) (kpi.Value, error) { return known(s.P99) },
	"max_ms":          func(s probe.Summary, _ string) (kpi.Value, error) { return known(s.Max) },
	"rejected_max_ms": func(s probe.Summary, _ string) (kpi.Value, error) { return known(s.Failed[probe.Rejected].Max) },
	"phase_p50_ms":    func(s probe.Summary, kind string) (kpi.Value, error) { return known(s.Phases[kind].P50) },
	"turns":           func(s probe.Summary, _ string) (kpi.Value, error) { return known(s.Turns) },
	"slow":            func(s probe.Summary, _ string) (kpi.Value, error) { return number(slow(s)) },
	"explained": func(s probe.Summary, _ string) (kpi.Value, error) {
		return kpi.Rate(slow(s)-s.Causes[probe.Unknown], slow(s)), nil
	},
	"causes": func(s probe.Summary, kind string) (kpi.Value, error) { return number(s.Causes[probe.Cause(kind)]) },
	"events": func(s probe.Summary, kind string) (kpi.Value, error) {
		policy, event, _ := strings.Cut(kind, ".")
		return number(s.Policy[policy][event])
	},
}

// slow are the calls with a cause, unknown too.
func slow(s probe.Summary) (n int) {
	for _, of := range s.Causes {
		n += of
	}
	return n
}

func number(n int) (kpi.Value, error) { return kpi.Value{Number: float64(n)}, nil }

func known(v *float64) (kpi.Value, error) {
	if v == nil {
		return kpi.Value{}, errors.New("no such call")
	}
	return kpi.Value{Number: *v}, nil
}

// median is that of one number of each observation.
func (o Observations) median(f func(Observation) (float64, error)) (kpi.Value, error) {
	var all []float64
	for _, x := range o {
		v, err := f(x)
		if err != nil {
			return kpi.Value{}, err
		}
		all = append(all, v)
	}
	slices.Sort(all)
	n := len(all)
	return kpi.Value{Number: (all[(n-1)/2] + all[n/2]) / 2}, nil
}

// marked are the good calls whose answers said that something was done without.
func (o Observations) marked() (kpi.Value, error) {
	n := 0
	for _, x := range o {
		for _, s := range x.Samples {
			if s.Class == probe.OK && s.Marked != "" {
				n++
			}
		}
	}
	return number(n)
}

// slowest is the longest time from a phase's beginning to the end of its first good call; at
// least a whole phase, where none succeeded.
func (o Observations) slowest() (kpi.Value, error) {
	worst := kpi.Value{}
	for _, x := range o {
		first := int64(math.MaxInt64)
		for _, s := range x.Samples {
			if s.Class == probe.OK && s.Degraded == "" {
				first = min(first, s.EndNS)
			}
		}
		if first == math.MaxInt64 {
			first, worst.AtLeast = x.End, true
		}
		worst.Number = max(worst.Number, float64(first-x.Begin)/float64(time.Millisecond))
	}
	return worst, nil
}

func (o Observations) packets(metric string) (kpi.Value, error) {
	var seen, lost uint64
	asked := math.NaN()
	for i, x := range o {
		if x.Counters == nil {
			return kpi.Value{}, fmt.Errorf("%s: no packet fault stood", x.name())
		}
		seen, lost = seen+x.Counters.Seen, lost+x.Counters.Lost
		if i > 0 && x.Asked != asked && metric == "asked" {
			return kpi.Value{}, errors.New("several losses were asked for")
		}
		asked = x.Asked
	}
	switch metric {
	case "packets":
		return kpi.Value{Number: float64(seen)}, nil
	case "asked":
		return kpi.Value{Number: asked}, nil
	}
	return kpi.Rate(int(lost), int(seen)), nil
}

func (o Observations) throughput() (kpi.Value, error) {
	ok, took := 0, int64(0)
	for _, x := range o {
		took += x.End - x.Begin
		for _, s := range x.Samples {
			if s.Class == probe.OK {
				ok++
			}
		}
	}
	if took <= 0 {
		return kpi.Value{}, errors.New("the phase had no time")
	}
	return kpi.Value{Number: float64(ok) / time.Duration(took).Seconds()}, nil
}
