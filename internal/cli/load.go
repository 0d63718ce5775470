package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/probe"
	"netemd/qdisc"
)

// loadFlags say when calls are made.
type loadFlags struct {
	callFlags
	duration, warmup, slow time.Duration
	rate                   float64
	arrival                string
	ramp                   ramp
	spikes                 []spike
	inFlight               int
	seed                   uint64
	policy                 string
}

const (
	arrivalConstant = "constant"
	arrivalPoisson  = "poisson"
)

func (l *loadFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	l.addShared(cmd)
	flags.Var(typed(&l.rate, "RATE", parseCallRate, nil), "rate", "open loop: calls a second, such as 100/s, whatever the others do")
	flags.Var(typed(&l.seed, "N", unsigned[uint64](64, 1), nil), "seed", "seed of what is drawn: arrivals, and jitter of policies; drawn if it is not given")
}

// addShared adds the flags that have no other meaning beside a fault's.
func (l *loadFlags) addShared(cmd *cobra.Command) {
	flags := cmd.Flags()
	l.callFlags.add(flags)
	l.slow, l.inFlight, l.arrival = probe.SlowThreshold, probe.DefaultMaxInFlight, arrivalConstant
	flags.Var(typed(&l.duration, "TIME", positive, none), "duration", "end after this time, warm-up included; without -n there is no other end")
	flags.Var(typed(&l.warmup, "TIME", positive, none), "warmup", "calls of this first part are in no number")
	one(cmd, &l.arrival, "arrival", "how an open loop's calls are spaced: evenly, or drawn", arrivalConstant, arrivalPoisson)
	flags.Var(typed(&l.ramp, "A..B/TIME", parseRamp, nil), "ramp", "open loop: a rate that changes evenly, such as 10..500/30s")
	flags.Var(&value{kind: "RATE/TIME@START", set: func(s string) error {
		x, err := parseSpike(s)
		if err == nil {
			l.spikes = append(l.spikes, x)
		}
		return err
	}}, "spike", "beside --rate: another rate for a time, such as 1000/2s@10s; may be given several times")
	flags.Var(typed(&l.inFlight, "N", integer(1, probe.MaxMaxInFlight), func(n int) string { return fmt.Sprint(n) }), "max-in-flight", "most calls of an open loop that are under way")
	flags.Var(typed(&l.slow, "TIME", positive, time.Duration.String), "slow", "a call above this gets a cause")
	flags.Var(once(&l.policy, "FILE", "a built-in policy, or the path of a file"), "policy", "client policy: a `FILE`, or a built-in one ('netemctl policy example' lists them)")
	_ = cmd.RegisterFlagCompletionFunc("policy", completePolicies(cobra.ShellCompDirectiveDefault))
}

// none shows no default.
func none(time.Duration) string { return "" }

// into fills the request's load.
func (l *loadFlags) into(cmd *cobra.Command, r *probe.Request) error {
	given := cmd.Flags().Changed
	r.Duration, r.Warmup, r.Timeout, r.Threshold, r.Seed = l.duration, l.warmup, l.timeout, l.slow, l.seed
	open := l.rate > 0 || l.ramp.over > 0
	if given("count") || l.duration == 0 && l.ramp.over == 0 {
		r.Count = l.count
	}
	if !open {
		beside := map[string]string{"spike": "--rate", "arrival": "--rate or --ramp", "max-in-flight": "--rate or --ramp"}
		for _, name := range slices.Sorted(maps.Keys(beside)) {
			if given(name) {
				return usageError{fmt.Errorf("--%s is of an open loop: say %s, too", name, beside[name])}
			}
		}
		r.Concurrency, r.Pace = l.concurrency, l.spacing()
		return nil
	}
	for _, name := range []string{"concurrency", "pace"} {
		if given(name) {
			return usageError{fmt.Errorf("--%s is of a closed loop: with --rate or --ramp calls start when they are due", name)}
		}
	}
	stages, err := l.stages()
	if err != nil {
		return err
	}
	r.Open = &probe.OpenLoop{Stages: stages, Poisson: l.arrival == arrivalPoisson, MaxInFlight: l.inFlight}
	return nil
}

// stages are the schedule of an open loop.
func (l *loadFlags) stages() ([]probe.Stage, error) {
	switch {
	case l.ramp.over > 0 && (l.rate > 0 || len(l.spikes) > 0):
		return nil, usageError{errors.New("--ramp has rates of its own: leave --rate and --spike out")}
	case l.ramp.over > 0:
		return []probe.Stage{{For: l.ramp.over, From: l.ramp.from, To: l.ramp.to}}, nil
	}
	spikes := slices.SortedFunc(slices.Values(l.spikes), func(a, b spike) int { return cmp.Compare(a.start, b.start) })
	var stages []probe.Stage
	at := time.Duration(0)
	for _, s := range spikes {
		if s.start < at {
			return nil, usageError{fmt.Errorf("--spike %s begins before the one before has ended, after %s", s, qdisc.FormatDuration(at))}
		}
		if s.start > at {
			stages = append(stages, probe.Stage{For: s.start - at, From: l.rate, To: l.rate})
		}
		stages = append(stages, probe.Stage{For: s.over, From: s.rate, To: s.rate})
		at = s.start + s.over
	}
	return append(stages, probe.Stage{From: l.rate, To: l.rate}), nil
}

// ramp is a rate that changes evenly.
type ramp struct {
	from, to float64
	over     time.Duration
}

// spike is another rate for a time.
type spike struct {
	rate        float64
	over, start time.Duration
}

func (s spike) String() string {
	return fmt.Sprintf("%s/%s@%s", strconv.FormatFloat(s.rate, 'f', -1, 64), qdisc.FormatDuration(s.over), qdisc.FormatDuration(s.start))
}

// wantRate is a rate's form.
var wantRate = fmt.Sprintf("calls a second above 0, up to %d, such as 100 or 0.5/s", probe.MaxRate)

func parseCallRate(s string) (float64, error) {
	v, ok := callRate(strings.TrimSuffix(s, "/s"))
	if !ok || v == 0 {
		return 0, &qdisc.FieldError{Value: s, Want: wantRate}
	}
	return v, nil
}

// callRate reads a plain decimal number of calls.
func callRate(s string) (float64, bool) {
	if _, ok := bare(s); !ok {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil && v >= 0 && v <= probe.MaxRate
}

func parseRamp(s string) (ramp, error) {
	bad := &qdisc.FieldError{Value: s, Want: fmt.Sprintf("two rates up to %d calls a second and how long it takes, such as 10..500/30s", probe.MaxRate)}
	rates, over, ok := strings.Cut(s, "/")
	from, to, both := strings.Cut(rates, "..")
	a, fine := callRate(from)
	b, also := callRate(to)
	d, err := positive(over)
	if !ok || !both || !fine || !also || err != nil || a == 0 && b == 0 {
		return ramp{}, bad
	}
	return ramp{a, b, d}, nil
}

func parseSpike(s string) (spike, error) {
	bad := &qdisc.FieldError{Value: s, Want: fmt.Sprintf("a rate up to %d calls a second, how long it lasts and when it begins, such as 1000/2s@10s", probe.MaxRate)}
	rate, rest, ok := strings.Cut(s, "/")
	over, start, both := strings.Cut(rest, "@")
	v, fine := callRate(rate)
	d, err := positive(over)
	at, startErr := qdisc.ParseDuration(start)
	if !ok || !both || !fine || err != nil || startErr != nil {
		return spike{}, bad
	}
	return spike{v, d, at}, nil
}
