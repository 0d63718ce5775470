package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"netemd/internal/experiment/plan"
	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/internal/suite"
	"netemd/probe"
)

// Commander runs the user's own command.
type Commander interface {
	// Command runs it once, to its end; at its limit, or when ctx ends, it is killed with all
	// that it started. The error is why it could not be run, or ctx's cause.
	Command(ctx context.Context, r Round) (CommandRun, error)
}

// Round is when a command runs.
type Round struct {
	Case, Phase string
	// Repeat counts from 1; 0 is the control run.
	Repeat int
	// Seed is the repeat's own.
	Seed uint64
	// Hold is the first fault that stands; empty without one.
	Hold string
}

// CommandRun is one run of a command.
type CommandRun struct {
	Began, Ended time.Time
	// Exit is its code, 128 + n for one that signal n ended, LimitExit at its limit.
	Exit int
	// Tests are what it said of its tests; nil where it said nothing.
	Tests []suite.Test
}

// LimitExit is the exit code of a command that reached its limit, as of timeout(1).
const LimitExit = 124

// command is a phase that is one run of the command; the load's calls, where there are any, go
// on beside it. faults ends the faults and says what became of them.
func (r *Runner) command(ctx context.Context, c plan.Case, phase string, repeat int, hold string, faults func() *outcome) error {
	if r.Commander == nil {
		return errors.New("there is no command to run")
	}
	calling, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var calls Calls
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if c.Load.Target != "" {
			calls, failed = r.call(calling, c, phase, repeat, plan.Extent{For: plan.MaxExtent})
		}
	}()
	step := fmt.Sprintf("%s: %s, the command runs", c.Name, phase)
	if repeat > 0 {
		step = fmt.Sprintf("%s: repeat %d of %d, %s, the command runs", c.Name, repeat, r.Plan.Repeats, phase)
	}
	if r.Progress != nil {
		r.Progress(step, probe.Progress{})
	}
	r.tell(Moment{Kind: MomentPhase, Event: Began, Case: c.Name, Phase: phase, Repeat: repeat})
	before := r.readServers(ctx)
	run, err := r.Commander.Command(ctx, Round{Case: c.Name, Phase: phase, Repeat: repeat, Seed: fault.Seed(r.Plan.Seed, repeat+1), Hold: hold})
	stop(errCommandEnded)
	<-ended
	if failed != nil && calling.Err() != nil && ctx.Err() == nil {
		failed = nil // it was we who stopped them
	}
	err = errors.Join(err, failed)
	r.served = increase(before, r.settled(ctx))
	in := Span{run.Began.Add(-calls.Unix).UnixNano(), run.Ended.Add(-calls.Unix).UnixNano()}
	became := faults() // ends them, before what stood is written down
	o := r.observed(c, phase, repeat, calls, in, became, err)
	defer func() { r.keep(o) }()
	o.Command = &run
	if err == nil && c.Load.Target == "" {
		o.Void = ""
		if became != nil {
			o.Void = became.void
		}
	}
	return err
}

var errCommandEnded = errors.New("the command ended")

// command is a number of the runs of a command.
func (o Observations) command(r kpi.Ref) (kpi.Value, error) {
	exit, ran, failed, of, known := 0, 0, 0, 0, false
	for _, x := range o {
		if x.Command == nil {
			return kpi.Value{}, fmt.Errorf("%s: no command ran", x.name())
		}
		exit = max(exit, x.Command.Exit)
		if x.Command.Tests == nil && r.Metric != "command" {
			return kpi.Value{}, fmt.Errorf("%s: the command said nothing of its tests (exit code %d)", x.name(), x.Command.Exit)
		}
		bad := false
		for _, t := range x.Command.Tests {
			if t.State != suite.Skipped {
				ran++
			}
			if t.State.Bad() {
				failed++
			}
			if t.Name == r.Kind && t.State != suite.Skipped {
				known, bad = true, bad || t.State.Bad()
			}
		}
		if bad {
			of++
		}
	}
	switch r.Metric {
	case "command":
		return number(exit)
	case "tests_run":
		return number(ran)
	case "tests_failed":
		return number(failed)
	}
	if !known {
		return kpi.Value{}, fmt.Errorf("the command ran no test %s", r.Kind)
	}
	return number(of)
}

// Tests are all that any run of a command told, each once, by group and name.
func (o Observations) Tests() (all []suite.Test) {
	seen := map[suite.Test]bool{}
	for _, x := range o {
		if x.Command == nil {
			continue
		}
		for _, t := range x.Command.Tests {
			t.State = ""
			if !seen[t] {
				seen[t] = true
				all = append(all, t)
			}
		}
	}
	return slices.Clip(all)
}
