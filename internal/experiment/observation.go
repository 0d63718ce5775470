package experiment

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/probe"
)

// Observation is what was measured in one phase of one repeat of a case.
type Observation struct {
	Case  string
	Phase string
	// Repeat counts from 1; 0 is the control run, which all repeats share.
	Repeat int
	// Begin and End bound the phase, by the samples' clock.
	Begin, End int64
	// Samples are the calls that were due in it.
	Samples []probe.Sample
	// Counters are those of the packet faults that stood in it; nil where none did.
	Counters *fault.Counters
	// Asked is the loss that was asked for, 0..1; NaN where no single fault says it.
	Asked float64
	// Void says why nothing of it counts: a fault that was lost, a run that broke off. Empty
	// otherwise.
	Void string
}

// Observations are all of a run.
type Observations []Observation

// Every repeat taken together.
const together = -1

// Measured looks numbers up in one repeat, or in all of them taken together for -1. Of
// several repeats, counts are summed, rates and percentiles are of all calls, peaks are the
// median of the repeats', and recovery is the slowest one.
func (o Observations) Measured(repeat int) kpi.Measured {
	return func(r kpi.Ref) (kpi.Value, error) {
		var of Observations
		for _, x := range o {
			if (r.Case == "" || x.Case == r.Case) && x.Phase == r.Phase && (x.Repeat == 0 || repeat == together || x.Repeat == repeat) {
				if x.Void != "" {
					return kpi.Value{}, fmt.Errorf("%s: %s", x.name(), x.Void)
				}
				of = append(of, x.part(r.After, r.Within))
			}
		}
		if len(of) == 0 {
			return kpi.Value{}, fmt.Errorf("the phase %s was not measured", r.Phase)
		}
		return of.value(r)
	}
}

func (o Observation) name() string {
	if o.Repeat == 0 {
		return o.Case + ", " + o.Phase
	}
	return fmt.Sprintf("%s, repeat %d, %s", o.Case, o.Repeat, o.Phase)
}

// part is what was due after and within times from its beginning, 0 for no bound.
func (o Observation) part(after, within time.Duration) Observation {
	begin := o.Begin + int64(after)
	if within > 0 {
		o.End = min(o.End, o.Begin+int64(within))
	}
	o.Begin = begin
	o.Samples = slices.DeleteFunc(slices.Clone(o.Samples), func(s probe.Sample) bool {
		due := dueNS(s)
		return due < o.Begin || due >= o.End
	})
	return o
}

// dueNS is when a call was due; in a closed loop, when it began.
func dueNS(s probe.Sample) int64 { return cmp.Or(s.DueNS, s.StartNS) }

func number(n int) (kpi.Value, error) { return kpi.Value{Number: float64(n)}, nil }

func known(v *float64) (kpi.Value, error) {
	if v == nil {
		return kpi.Value{}, errors.New("no such call")
	}
	return kpi.Value{Number: *v}, nil
}

// value is one number of observations of the same phase.
func (o Observations) value(r kpi.Ref) (kpi.Value, error) {
	switch r.Metric {
	case "attempts_peak", "retries_peak", "retries_mean":
		width, err := time.ParseDuration(r.Kind)
		if err != nil {
			return kpi.Value{}, err
		}
		return o.median(func(x Observation) float64 { return x.began(r.Metric, width) }), nil
	case "recovery_ms":
		return o.slowest()
	case "packets", "measured", "asked":
		return o.packets(r.Metric)
	case "throughput":
		return o.throughput()
	case "server":
		return kpi.Value{}, errors.New("the lab's servers count nothing")
	}
	return o.calls(r)
}

// calls is a number of the calls' own summary.
func (o Observations) calls(r kpi.Ref) (kpi.Value, error) {
	rec := probe.NewRecorder("", "", probe.SlowThreshold)
	var failed []int64
	slow, causeless := 0, 0
	for _, x := range o {
		for _, s := range x.Samples {
			rec.Add(s)
			if s.Class != probe.OK && s.Class != probe.Rejected {
				failed = append(failed, int64(s.Duration()))
			}
			if s.Cause != "" {
				slow++
			}
			if s.Cause == probe.Unknown {
				causeless++
			}
		}
	}
	s := rec.Summary("")
	switch r.Metric {
	case "calls":
		return number(s.Count)
	case "ok":
		return number(s.OK)
	case "success":
		return kpi.Rate(s.OK, s.Count), nil
	case "failed":
		return number(s.Count - s.OK)
	case "errors":
		return number(s.Errors[probe.Class(r.Kind)])
	case "rejected":
		return number(s.Rejected)
	case "degraded":
		return number(s.Degraded)
	case "attempts":
		return number(s.Attempts)
	case "retries":
		return number(s.Attempts - (s.Count - s.Rejected))
	case "p50_ms":
		return known(s.P50)
	case "p90_ms":
		return known(s.P90)
	case "p95_ms":
		return known(s.P95)
	case "p99_ms":
		return known(s.P99)
	case "max_ms":
		return known(s.Max)
	case "failed_p50_ms":
		return known(rank(failed, 50))
	case "failed_max_ms":
		return known(rank(failed, 100))
	case "rejected_max_ms":
		return known(s.Failed[probe.Rejected].Max)
	case "phase_p50_ms":
		return known(s.Phases[r.Kind].P50)
	case "turns":
		return known(s.Turns)
	case "slow":
		return number(slow)
	case "explained":
		return kpi.Rate(slow-causeless, slow), nil
	case "causes":
		return number(s.Causes[probe.Cause(r.Kind)])
	case "events":
		policy, event, _ := strings.Cut(r.Kind, ".")
		return number(s.Policy[policy][event])
	}
	return kpi.Value{}, fmt.Errorf("no metric %s: %w", r.Metric, errors.ErrUnsupported)
}

// rank is the value at the nearest rank of a percentage, in ms; nil without one.
func rank(values []int64, percent float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	slices.Sort(values)
	i := max(1, int(math.Ceil(percent*float64(len(values))/100-1e-9)))
	return new(float64(values[i-1]) / float64(time.Millisecond))
}

// began counts what began in the phase: the most in any time of a width, or the mean in such
// times between the first and the last one.
func (o Observation) began(metric string, width time.Duration) float64 {
	var starts []int64
	for _, s := range o.Samples {
		attempts := s.Attempts
		if len(attempts) == 0 && s.Class != probe.Rejected && s.Degraded == "" {
			attempts = []probe.Sample{s}
		}
		if metric != "attempts_peak" {
			attempts = attempts[min(1, len(attempts)):]
		}
		for _, a := range attempts {
			if a.StartNS < o.End {
				starts = append(starts, a.StartNS)
			}
		}
	}
	if len(starts) == 0 {
		return 0
	}
	slices.Sort(starts)
	if metric == "retries_mean" {
		over := starts[len(starts)-1] - starts[0] + int64(width)
		return float64(len(starts)) * float64(width) / float64(over)
	}
	peak, first := 0, 0
	for i, at := range starts {
		for at-starts[first] >= int64(width) {
			first++
		}
		peak = max(peak, i-first+1)
	}
	return float64(peak)
}

// median is that of one number of each observation.
func (o Observations) median(f func(Observation) float64) kpi.Value {
	var all []float64
	for _, x := range o {
		all = append(all, f(x))
	}
	slices.Sort(all)
	n := len(all)
	return kpi.Value{Number: (all[(n-1)/2] + all[n/2]) / 2}
}

// slowest is the longest time from a phase's beginning to the end of its first good call.
func (o Observations) slowest() (kpi.Value, error) {
	worst := 0.
	for _, x := range o {
		first := int64(math.MaxInt64)
		for _, s := range x.Samples {
			if s.Class == probe.OK && s.Degraded == "" {
				first = min(first, s.EndNS)
			}
		}
		if first == math.MaxInt64 {
			return kpi.Value{}, fmt.Errorf("%s: no call succeeded", x.name())
		}
		worst = max(worst, float64(first-x.Begin)/float64(time.Millisecond))
	}
	return kpi.Value{Number: worst}, nil
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
