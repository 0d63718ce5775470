package experiment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/kpi"
	"netemd/internal/suite"
)

// commander is a suite of which TestPay fails while a fault stands; it takes a second.
type commander struct {
	*agent
	rounds []Round
	breaks error
}

func (c *commander) Command(ctx context.Context, r Round) (CommandRun, error) {
	c.rounds = append(c.rounds, r)
	run := CommandRun{Began: time.Now()}
	err := sleep(ctx, time.Second)
	run.Ended = time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	run.Tests = []suite.Test{{Group: "shop", Name: "TestList", State: suite.Passed}, {Group: "shop", Name: "TestPay", State: suite.Passed}, {Name: "TestLater", State: suite.Skipped}}
	if len(c.faults) > 0 {
		run.Exit, run.Tests[1].State = 1, suite.Failed
	}
	return run, errors.Join(err, c.breaks)
}

const commanded = `experiment: x
version: 1
repeats: 2
phases: {control: command, fault: command, recovery: command}
faults: [{target: web, impairment: {loss: 20%}}]
kpis:
  - {must: "command == 1 && tests_failed == 2 && tests_run == 4 && tests[TestPay] == 2"}
  - {must: "command == 0 && tests_failed == 0 && tests[TestPay] == 0 in recovery"}
  - {must: tests_failed == 0 && tests_run == 2 in control}
  - {must: "tests[TestList] == 0"}
  - {must: "tests[TestLater] == 0"}
  - {must: calls >= 20}
`

func TestCommandNumbers(t *testing.T) {
	for _, load := range []string{"", "load: {target: pg}\n"} {
		synctest.Test(t, func(t *testing.T) {
			a := newAgent()
			c := &commander{agent: a}
			p := read(t, commanded+load)
			r := &Runner{Plan: p, Caller: &caller{agent: a}, Faults: a, Commander: c}
			o, err := r.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, j := range Judge(p, o) {
				got = append(got, string(j.Verdict))
			}
			want := "passed passed passed passed inconclusive inconclusive"
			if load != "" {
				want = strings.Replace(want, "inconclusive inconclusive", "inconclusive passed", 1)
			}
			if text := strings.Join(got, " "); text != want {
				t.Errorf("load %q: %s, want %s", load, text, want)
			}
			if len(c.rounds) != 5 || c.rounds[0].Phase != kpi.Control || c.rounds[0].Hold != "" || c.rounds[1].Hold != "f1" || c.rounds[4].Repeat != 2 {
				t.Errorf("%+v", c.rounds)
			}
			if len(a.faults) != 0 {
				t.Errorf("left %v", a.faults)
			}
			if len(o.Tests()) != 3 {
				t.Errorf("%+v", o.Tests())
			}
			for _, x := range o {
				if d := time.Duration(x.End - x.Begin); d != time.Second || x.Void != "" {
					t.Errorf("%s: took %v, %s", x.name(), d, x.Void)
				}
			}
		})
	}
}

// TestCommandBroken has an end of the run while a command runs, and one that cannot be run.
func TestCommandBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent()
		p := read(t, commanded)
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		o, err := (&Runner{Plan: p, Faults: a, Commander: &commander{agent: a}}).Run(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || len(o) != 2 || o[1].Void == "" || len(a.faults) != 0 {
			t.Errorf("%v, %d observations, left %v", err, len(o), a.faults)
		}
		if j := Judge(p, o); j[0].Verdict != kpi.Inconclusive {
			t.Errorf("%+v", j[0])
		}
	})
	broken := fmt.Errorf("no such thing")
	a := newAgent()
	if _, err := (&Runner{Plan: read(t, commanded), Faults: a, Commander: &commander{agent: a, breaks: broken}}).Run(t.Context()); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// countingCommander is a suite whose tests reach a server of the lab.
type countingCommander struct {
	*commander
	lab *lab
}

func (c countingCommander) Command(ctx context.Context, r Round) (CommandRun, error) {
	stop := c.lab.during()
	defer stop()
	return c.commander.Command(ctx, r)
}

// TestCommandServers: what servers count while a command runs, and until they have done their work,
// is of its phase.
func TestCommandServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, l := newAgent(), &lab{works: 2 * time.Second}
		p := read(t, `experiment: x
version: 1
lab: tiers
repeats: 2
phases: {control: command, fault: command}
faults: [{target: web, impairment: {loss: 20%}}]
kpis:
  - {must: "server[front.hits] == 10 && server[front.done] == 10 in control"}
  - {must: "server[front.hits] == 20 && server[front.done] == 20"}
  - {must: "server[front.hits] == 10 in every repeat"}
`)
		r := &Runner{Plan: p, Faults: a, Servers: l, Commander: countingCommander{&commander{agent: a}, l}}
		o, err := r.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, j := range Judge(p, o) {
			if j.Verdict != kpi.Passed {
				t.Errorf("%s: %+v", j.Text, j.Judgement)
			}
		}
	})
}
