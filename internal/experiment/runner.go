package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"netemd/internal/experiment/plan"
	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/probe"
)

// Caller makes the calls of an experiment.
type Caller interface {
	// Calls makes them under the client policy of that name and text, none where the text is
	// empty. What was measured until an error, or until ctx ended, comes with the error.
	Calls(ctx context.Context, r probe.Request, policy string, text []byte, progress func(probe.Progress)) (Calls, error)
}

// Calls are calls that were made.
type Calls struct {
	Samples []probe.Sample
	// Unix is what makes Unix time of the samples' clock.
	Unix time.Duration
}

// Runner carries a plan out, case by case. Make a new one for each run.
type Runner struct {
	Plan   plan.Plan
	Caller Caller
	Faults Faults
	// Commander runs the command of phases that are one; nil where the plan has none.
	Commander Commander
	// Servers are those of the plan's lab; nil: none of them counts or can be set.
	Servers Servers
	// Progress, when set, is told what happens: a phrase, and how far the calls are.
	Progress func(step string, p probe.Progress)
	// Happened, when set, is told what the run does; it must be safe for concurrent use.
	Happened func(Moment)
	// Now is the time; nil: time.Now.
	Now func() time.Time

	observations Observations
	// served is what the servers counted in the phase that is observed next.
	served reading
	// stood are the times of the repeat's faults.
	stood []interval
}

// interval is a time by the wall's clock.
type interval struct{ begin, end time.Time }

// Run returns what was measured. Every fault is cleared on every way out. When ctx ends, what
// was measured until then comes with ctx's cause; other errors of one case end the run, too.
func (r *Runner) Run(ctx context.Context) (Observations, error) {
	if r.Now == nil {
		r.Now = time.Now
	}
	for _, c := range r.Plan.Cases {
		if err := r.oneCase(ctx, c); err != nil {
			return r.observations, fmt.Errorf("case %s: %w", c.Name, err)
		}
	}
	return r.observations, nil
}

func (r *Runner) oneCase(ctx context.Context, c plan.Case) (err error) {
	r.stood = nil
	back, err := r.setServers(ctx, c)
	defer func() { err = errors.Join(err, back(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	if !c.Control.IsZero() {
		if err := r.calls(ctx, c, kpi.Control, 0, c.Control); err != nil {
			return err
		}
	}
	for repeat := 1; repeat <= r.Plan.Repeats; repeat++ {
		r.stood = nil
		once := r.separate
		if c.Continuous() {
			once = r.continuous
		}
		if err := once(ctx, c, repeat); err != nil {
			return err
		}
	}
	return nil
}

// calls is a phase that is a run of its own, without a fault.
func (r *Runner) calls(ctx context.Context, c plan.Case, phase string, repeat int, e plan.Extent) error {
	if e.Command {
		return r.command(ctx, c, phase, repeat, "", func() *outcome { return nil })
	}
	r.tell(Moment{Kind: MomentPhase, Event: Began, Case: c.Name, Phase: phase, Repeat: repeat})
	before := r.readServers(ctx)
	calls, err := r.call(ctx, c, phase, repeat, e)
	r.served = increase(before, r.settled(ctx))
	r.observe(c, phase, repeat, calls, window(calls.Samples), nil, err)
	return err
}

// call makes the calls of an extent.
func (r *Runner) call(ctx context.Context, c plan.Case, phase string, repeat int, e plan.Extent) (Calls, error) {
	return r.callWith(ctx, c, phase, repeat, e, func() {})
}

// callWith also says when the first of them are under way.
func (r *Runner) callWith(ctx context.Context, c plan.Case, phase string, repeat int, e plan.Extent, first func()) (Calls, error) {
	q := c.Load
	q.Count, q.Duration = e.Calls, e.For
	// Each repeat draws anew, and the same plan the same.
	q.Seed = fault.Seed(r.Plan.Seed, repeat+1)
	step := fmt.Sprintf("%s: %s", c.Name, phase)
	if repeat > 0 {
		step = fmt.Sprintf("%s: repeat %d of %d, %s", c.Name, repeat, r.Plan.Repeats, phase)
	}
	r.tell(Moment{Kind: MomentCalls, Event: Began, Case: c.Name, Phase: phase, Repeat: repeat})
	return r.Caller.Calls(ctx, q, c.Policy, r.Plan.Policies[c.Policy], func(p probe.Progress) {
		first()
		if r.Progress != nil {
			r.Progress(step, p)
		}
	})
}

// separate has a run under the faults, and one after them.
func (r *Runner) separate(ctx context.Context, c plan.Case, repeat int) error {
	s := standing{runner: r, name: c.Name, repeat: repeat}
	defer s.release(ctx)
	if err := s.applyAll(ctx, c.Faults); err != nil {
		return err
	}
	var err error
	if c.Commands() {
		err = r.command(ctx, c, kpi.Fault, repeat, s.first(), func() *outcome { s.release(ctx); return s.outcome(c) })
	} else {
		var calls Calls
		r.tell(Moment{Kind: MomentPhase, Event: Began, Case: c.Name, Phase: kpi.Fault, Repeat: repeat})
		before := r.readServers(ctx)
		calls, err = r.call(ctx, c, kpi.Fault, repeat, c.Fault)
		r.served = increase(before, r.settled(ctx))
		s.release(ctx)
		r.observe(c, kpi.Fault, repeat, calls, window(calls.Samples), s.outcome(c), err)
	}
	if err != nil || c.Recovery.IsZero() {
		return err
	}
	return r.calls(ctx, c, kpi.Recovery, repeat, c.Recovery)
}

// continuous has one run, through which the faults come and go. Without a warm-up those that
// stand from the beginning stand before the first call.
func (r *Runner) continuous(ctx context.Context, c plan.Case, repeat int) error {
	s := standing{runner: r, name: c.Name, repeat: repeat}
	defer s.release(ctx)
	timetable := steps(c)
	for c.Warmup.For == 0 && timetable[0].at == 0 && !timetable[0].last() {
		if err := s.apply(ctx, timetable[0].apply); err != nil {
			return err
		}
		timetable = timetable[1:]
	}
	atBegin := r.readServers(ctx)
	calling, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	timeline, over := context.WithCancelCause(ctx)
	defer over(nil)
	began := make(chan struct{})
	var calls Calls
	var failed error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() { over(errEnded) }()
		first := sync.OnceFunc(func() { close(began) })
		whole := plan.Extent{For: c.Warmup.For + c.Fault.For + c.Recovery.For}
		calls, failed = r.callWith(calling, c, AllPhases, repeat, whole, first)
	}()
	select {
	case <-began:
	case <-ended:
	}
	t := r.pass(timeline, c, &s, timetable)
	if t.err == nil && !t.healed.IsZero() {
		<-ended // the recovery is what is left
	} else if !errors.Is(t.err, errEnded) {
		stop(t.err)
		<-ended
	}
	err := cmp.Or(failed, t.err)
	at := func(t time.Time) int64 { return t.Add(-calls.Unix).UnixNano() }
	all := window(calls.Samples)
	if t.begin.IsZero() || t.end.IsZero() {
		r.observe(c, kpi.Fault, repeat, calls, all, t.outcome, cmp.Or(err, errEnded))
		return err
	}
	begin := all.Begin
	if c.Warmup.For > 0 {
		begin = at(t.begin)
		r.observe(c, kpi.Warmup, repeat, calls, Span{all.Begin, begin}, nil, err)
	}
	atEnd := r.settled(ctx)
	if c.Recovery.For == 0 {
		t.faulted = atEnd
	}
	if c.Warmup.For == 0 {
		t.begun = atBegin
	}
	r.served = increase(t.begun, t.faulted)
	r.observe(c, kpi.Fault, repeat, calls, Span{begin, at(t.end)}, t.outcome, err)
	if c.Recovery.For > 0 {
		r.served = increase(t.recovering, atEnd)
		r.observe(c, kpi.Recovery, repeat, calls, Span{at(t.healed), all.End}, nil, err)
	}
	return err
}

// passed is when the phases of a continuous run began.
type passed struct {
	begin, end, healed time.Time
	// begun and faulted are what the servers had counted when the phase fault began and ended,
	// recovering when the faults were gone.
	begun, faulted, recovering reading
	outcome                    *outcome
	err                        error
}

// pass waits out the warm-up and has the faults of a timetable stand in their times.
func (r *Runner) pass(ctx context.Context, c plan.Case, s *standing, timetable []step) (p passed) {
	if c.Warmup.For > 0 {
		r.tell(Moment{Kind: MomentPhase, Event: Began, Case: c.Name, Phase: kpi.Warmup, Repeat: s.repeat})
	}
	if p.err = sleep(ctx, c.Warmup.For); p.err != nil {
		return p
	}
	defer func() {
		s.release(ctx)
		p.outcome = s.outcome(c)
		p.recovering = r.readServers(ctx)
		p.healed = r.Now()
		if c.Recovery.For > 0 && p.err == nil {
			r.tell(Moment{Kind: MomentPhase, Event: Began, Case: c.Name, Phase: kpi.Recovery, Repeat: s.repeat})
		}
	}()
	p.begin = r.Now()
	r.tell(Moment{Kind: MomentPhase, Event: Began, Case: c.Name, Phase: kpi.Fault, Repeat: s.repeat})
	p.begun = r.readServers(ctx)
	for _, step := range timetable {
		at := step.at
		if step.release != nil {
			at = s.due(step.release, p.begin, c.Fault.For)
		}
		p.err = sleep(ctx, at-r.Now().Sub(p.begin))
		if errors.Is(p.err, errEnded) && step.last() && c.Recovery.For == 0 {
			p.err = nil // the calls' own clock ended them, a little before ours
		}
		if p.err != nil {
			return p
		}
		switch {
		case step.apply != nil:
			p.err = s.apply(ctx, step.apply)
		case step.release != nil:
			s.end(ctx, step.release)
		}
		if p.err != nil {
			return p
		}
	}
	p.end = r.Now()
	p.faulted = r.readServers(ctx)
	return p
}

// window is from when the first call was due to when the last one ended.
func window(samples []probe.Sample) Span {
	if len(samples) == 0 {
		return Span{}
	}
	w := Span{math.MaxInt64, math.MinInt64}
	for _, s := range samples {
		w.Begin, w.End = min(w.Begin, dueNS(s)), max(w.End, s.EndNS)
	}
	w.End++ // a Span is without its end
	return w
}

// observe keeps what observed makes.
func (r *Runner) observe(c plan.Case, phase string, repeat int, calls Calls, in Span, faults *outcome, err error) {
	r.keep(r.observed(c, phase, repeat, calls, in, faults, err))
}

// observed is a phase with the samples that were due in a Span.
func (r *Runner) observed(c plan.Case, phase string, repeat int, calls Calls, in Span, faults *outcome, err error) Observation {
	o := Observation{Case: c.Name, Phase: phase, Repeat: repeat, Begin: in.Begin, End: in.End, Asked: math.NaN(), Grace: r.Plan.Grace(c), Unix: calls.Unix}
	for _, t := range r.stood {
		o.Faults = append(o.Faults, Span{Begin: t.begin.Add(-calls.Unix).UnixNano(), End: t.end.Add(-calls.Unix).UnixNano()})
	}
	for _, s := range calls.Samples {
		if due := dueNS(s); in.Begin <= due && due < in.End {
			o.Samples = append(o.Samples, s)
		}
	}
	if faults != nil {
		o.Outages = faults.outages
		o.Counters, o.Asked, o.Void = faults.counters, faults.asked, faults.void
	}
	o.Servers, o.Unsettled, r.served = r.served.counters, r.served.doubt, reading{}
	switch {
	case err != nil:
		o.Void = "the run broke off: " + err.Error()
	case len(o.Samples) == 0 && o.Void == "":
		o.Void = "no call was due in it"
	}
	return o
}

// keep keeps an observation, which is whole, and tells of it.
func (r *Runner) keep(o Observation) {
	r.observations = append(r.observations, o)
	r.tell(Moment{Kind: MomentPhase, Event: Ended, Case: o.Case, Phase: o.Phase, Repeat: o.Repeat, Observed: &o})
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

var errEnded = errors.New("the calls ended before the phase did")
