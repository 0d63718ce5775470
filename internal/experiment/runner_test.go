package experiment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/experiment/plan"
	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/probe"
)

// caller is a client that calls each 100 ms and takes 1 ms, or fails after 50 ms while a fault
// stands at the agent.
type caller struct {
	*agent
	// slow is how long it takes until the first call is made.
	slow time.Duration
	// breaks is the error with which it ends after a second.
	breaks error
	seeds  []uint64
	asked  []probe.Request
	policy []string
}

const samplesUnix = 1000 * time.Second

func (c *caller) Calls(ctx context.Context, r probe.Request, policy string, text []byte, progress func(probe.Progress)) (Calls, error) {
	c.seeds, c.asked, c.policy = append(c.seeds, r.Seed), append(c.asked, r), append(c.policy, policy+string(text))
	if err := sleep(ctx, c.slow); err != nil {
		return Calls{}, err
	}
	out := Calls{Unix: samplesUnix}
	begin := time.Now()
	for i := 0; (r.Count == 0 || i < r.Count) && (r.Duration == 0 || time.Since(begin) < r.Duration); i++ {
		if c.breaks != nil && time.Since(begin) >= time.Second {
			return out, c.breaks
		}
		c.mu.Lock()
		standing := len(c.faults)
		c.mu.Unlock()
		s := probe.Sample{Seq: i, StartNS: time.Now().Add(-samplesUnix).UnixNano(), Class: probe.OK}
		took := time.Millisecond
		if standing > 0 {
			s.Class, took = probe.Timeout, 50*time.Millisecond
		}
		s.EndNS = s.StartNS + int64(took)
		out.Samples = append(out.Samples, s)
		progress(probe.Progress{})
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return out, err
		}
	}
	return out, nil
}

const runs = `experiment: x
version: 1
repeats: 2
seed: 5
load: {target: pg}
faults: [{impairment: {loss: 20%}}]
phases: {control: 5 calls, fault: 10 calls, recovery: 3 calls}
cases:
  counted: {}
  timed:
    load: {policy: breaker}
    phases: {warmup: 1050ms, fault: 4s, recovery: 2s}
    faults: [{at: 1s, for: 2s, impairment: {loss: 20%}}]
kpis: [{must: ok > 0}]
`

func read(t *testing.T, text string) plan.Plan {
	t.Helper()
	p, err := plan.Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	p.Policies = map[string][]byte{"breaker": []byte(" text")}
	return p
}

func TestRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{agent: newAgent(), slow: 300 * time.Millisecond}
		r := &Runner{Plan: read(t, runs), Caller: c, Faults: c.agent}
		o, err := r.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range o {
			failed := 0
			for _, s := range x.Samples {
				if s.Class != probe.OK {
					failed++
				}
			}
			lost := uint64(0)
			if x.Counters != nil {
				lost = x.Counters.Lost
			}
			got = append(got, fmt.Sprintf("%s %s %d: %d calls, %d failed, %v, lost %d %s", x.Case, x.Phase, x.Repeat, len(x.Samples), failed,
				time.Duration(x.End-x.Begin).Round(100*time.Millisecond), lost, x.Void))
		}
		want := `counted control 0: 5 calls, 0 failed, 400ms, lost 0 
counted fault 1: 10 calls, 10 failed, 1s, lost 600 
counted recovery 1: 3 calls, 0 failed, 200ms, lost 0 
counted fault 2: 10 calls, 10 failed, 1s, lost 600 
counted recovery 2: 3 calls, 0 failed, 200ms, lost 0 
timed control 0: 5 calls, 0 failed, 400ms, lost 0 
timed warmup 1: 11 calls, 0 failed, 1.1s, lost 0 
timed fault 1: 40 calls, 20 failed, 4s, lost 600 
timed recovery 1: 20 calls, 0 failed, 2s, lost 0 
timed warmup 2: 11 calls, 0 failed, 1.1s, lost 0 
timed fault 2: 40 calls, 20 failed, 4s, lost 600 
timed recovery 2: 20 calls, 0 failed, 2s, lost 0 `
		if text := strings.Join(got, "\n"); text != want {
			t.Errorf("%s\nwant\n%s", text, want)
		}
		if len(c.faults) > 0 {
			t.Errorf("left behind: %v", c.faults)
		}
		seen := map[uint64]bool{}
		for _, s := range c.seeds {
			seen[s] = true
		}
		if len(seen) < 3 || c.policy[6] != "breaker text" || c.policy[0] != "" {
			t.Errorf("seeds %v, policies %q", c.seeds, c.policy)
		}
	})
}

// TestRunnerNoWarmup has the fault stand before the first call, and the calls' own clock end
// the phase.
func TestRunnerNoWarmup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{agent: newAgent(), slow: 300 * time.Millisecond}
		r := &Runner{Caller: c, Faults: c.agent, Plan: read(t, `experiment: x
version: 1
repeats: 1
load: {target: pg}
faults: [{impairment: {loss: 20%}}]
phases: {fault: 2s}
kpis: [{must: ok == 0}]
`)}
		o, err := r.Run(t.Context())
		if err != nil || len(o) != 1 || o[0].Void != "" || len(o[0].Samples) != 20 {
			t.Fatalf("%v, %+v", err, o)
		}
		if v := Verdict(Judge(r.Plan, o)); v != kpi.Passed {
			t.Errorf("%s: a call came before the fault", v)
		}
	})
}

// TestRunnerLate: a fault that is late to stand does so for as long as it was asked for, as far
// as the phase goes.
func TestRunnerLate(t *testing.T) {
	for at, failed := range map[string]int{"1s": 5, "3200ms": 4} {
		synctest.Test(t, func(t *testing.T) {
			c := &caller{agent: newAgent()}
			c.late = 350 * time.Millisecond
			r := &Runner{Caller: c, Faults: c.agent, Plan: read(t, fmt.Sprintf(`experiment: x
version: 1
repeats: 1
load: {target: pg}
faults: [{impairment: {loss: 20%%}, at: %s, for: 500ms}]
phases: {fault: 4s}
kpis: [{must: failed == %d && calls == 40}]
`, at, failed))}
			o, err := r.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if judged := Judge(r.Plan, o); Verdict(judged) != kpi.Passed {
				t.Errorf("at %s: %+v", at, judged)
			}
		})
	}
}

// TestRunnerBreaks has runs that end early in all ways: what was measured is there, counts for
// nothing, and no fault stands.
func TestRunnerBreaks(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*caller)
		plan string
		want string
	}{
		"interrupted, timed":   {func(*caller) {}, strings.Replace(runs, "  counted: {}\n", "", 1), "interrupted"},
		"interrupted, counted": {func(*caller) {}, strings.Replace(runs, "fault: 10 calls", "fault: 100 calls", 1), "interrupted"},
		"calls break":          {func(c *caller) { c.breaks = errors.New("the child was killed") }, strings.Replace(runs, "  counted: {}\n", "", 1), "the child was killed"},
		"apply":                {func(c *caller) { c.applyErr = errors.New("no such kernel") }, runs, "no such kernel"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := &caller{agent: newAgent()}
				c.set(k)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(3500*time.Millisecond, func() { cancel(errors.New("interrupted")) })
				r := &Runner{Plan: read(t, c.plan), Caller: k, Faults: k.agent}
				o, err := r.Run(ctx)
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
				if len(k.faults) > 0 {
					t.Errorf("left behind: %v", k.faults)
				}
				if last := o[len(o)-1]; last.Repeat > 0 && last.Void == "" || len(o) == 0 {
					t.Errorf("%+v", last)
				}
				judge, _ := kpi.Parse("calls > 0 of timed")
				if j := judge.Judge(newNumbers(o).in(together)); j.Verdict != kpi.Inconclusive {
					t.Errorf("%+v", j)
				}
			})
		})
	}
}

// TestRunnerVoid has faults of which a phase is not what it says.
func TestRunnerVoid(t *testing.T) {
	for want, set := range map[string]func(*agent){
		"was lost":          func(a *agent) { a.state = fault.Lost },
		"no packet matched": func(a *agent) { a.counters = fault.Counters{} },
		"not held":          func(a *agent) { a.gone = true },
	} {
		synctest.Test(t, func(t *testing.T) {
			c := &caller{agent: newAgent()}
			set(c.agent)
			r := &Runner{Plan: read(t, runs), Caller: c, Faults: c.agent}
			o, err := r.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			void := 0
			for _, x := range o {
				if (x.Void != "") != (x.Phase == kpi.Fault) || x.Void != "" && !strings.Contains(x.Void, want) {
					t.Errorf("%s: %q, want %q", x.name(), x.Void, want)
				}
				if x.Void != "" {
					void++
				}
			}
			if void != 4 {
				t.Errorf("%d void", void)
			}
		})
	}
}
