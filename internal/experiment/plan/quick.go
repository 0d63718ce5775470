package plan

import (
	"cmp"
	"slices"
	"time"

	"netemd/qdisc"
)

// Quick is how a plan is made shorter.
type Quick struct {
	// Repeats, 1 if it is 0, and at most so long phases; a zero Extent leaves a phase as it is,
	// as one of the other kind (calls or a time) does.
	Repeats                          int
	Control, Warmup, Fault, Recovery Extent
	// Takes is how long the shorter run takes; 0: nobody has measured it.
	Takes time.Duration
}

// quick are the keys of Quick.
type quick struct {
	Repeats int           `yaml:"repeats,omitempty" want:"a number from 1 to 100; 1 if it is not said"`
	Phases  phases        `yaml:"phases,omitempty"`
	Takes   time.Duration `yaml:"takes,omitempty" want:"how long the shorter run takes, such as 40s"`
}

func (r *reader) quick(p *Plan) {
	q := r.Quick
	p.Quick = Quick{
		Repeats: q.Repeats, Control: Extent(q.Phases.Control), Warmup: Extent(q.Phases.Warmup),
		Fault: Extent(q.Phases.Fault), Recovery: Extent(q.Phases.Recovery), Takes: q.Takes,
	}
	if q.Repeats < 0 || q.Repeats > p.Repeats {
		r.refuse("quick.repeats", "", "a number from 1 to the plan's repeats")
	}
	for field, d := range map[string]time.Duration{"takes": r.Takes, "quick.takes": q.Takes} {
		if d < 0 {
			r.refuse(field, qdisc.FormatDuration(d), "a time above 0s")
		}
	}
	if p.Quick.Warmup.Calls > 0 {
		r.refuse("quick.phases.warmup", "", "a time, such as 2s")
	}
	for _, c := range p.Cases {
		short := shorter(c.Fault, p.Quick.Fault)
		for _, f := range c.Faults {
			if c.Continuous() && (f.At+f.For > short.For || f.At == short.For) {
				r.refuse("quick.phases.fault", qdisc.FormatDuration(short.For), "a time in which all faults of the case "+c.Name+" have theirs")
				return
			}
		}
	}
}

// shorter is the shorter one of two of the same kind.
func shorter(e, most Extent) Extent {
	if e.Calls > 0 && most.Calls > 0 {
		e.Calls = min(e.Calls, most.Calls)
	}
	if e.For > 0 && most.For > 0 {
		e.For = min(e.For, most.For)
	}
	return e
}

// Shortened is the plan with fewer repeats and shorter phases.
func (p Plan) Shortened() Plan {
	q := p.Quick
	p.Short, p.Repeats, p.Takes = true, max(1, q.Repeats), q.Takes
	p.Cases = slices.Clone(p.Cases)
	for i := range p.Cases {
		c := &p.Cases[i]
		c.Control, c.Warmup = shorter(c.Control, q.Control), shorter(c.Warmup, q.Warmup)
		c.Fault, c.Recovery = shorter(c.Fault, q.Fault), shorter(c.Recovery, q.Recovery)
	}
	return p
}

// Bounds are how long a run takes at least and at most, without its lab: at most, each call
// under a fault takes all its attempts' timeouts and pauses, and each other one 100 ms; a run
// of a command takes its limit. Both
// are Takes where its author has measured it.
func (p Plan) Bounds() (least, most time.Duration) {
	if p.Takes > 0 {
		return p.Takes, p.Takes
	}
	for _, c := range p.Cases {
		const healthy = 100 * time.Millisecond
		l, m := c.bounds(c.Control, healthy)
		if c.Control.Command {
			m = p.Command.Limit
		}
		least, most = least+l, most+m
		for _, phase := range []struct {
			Extent
			call time.Duration
		}{{c.Warmup, healthy}, {c.Fault, p.longestCall(c)}, {c.Recovery, healthy}} {
			l, m := c.bounds(phase.Extent, phase.call)
			if phase.Command {
				m = p.Command.Limit
			}
			least, most = least+time.Duration(p.Repeats)*l, most+time.Duration(p.Repeats)*m
		}
	}
	return least, most
}

// bounds are how long a phase of a case takes whose calls take no time, or one each.
func (c Case) bounds(e Extent, call time.Duration) (least, most time.Duration) {
	if e.Calls == 0 {
		return e.For, e.For
	}
	load := c.Load.WithDefaults()
	n := time.Duration(e.Calls)
	if load.Open != nil {
		least = time.Duration(float64(n) / load.Open.Stages[0].From * float64(time.Second))
		return least, least + call
	}
	each := time.Duration(max(1, load.Concurrency))
	pace := max(0, load.Pace)
	return n * pace, max(n*pace, (n+each-1)/each*call)
}

// longestCall is a call that fails in each of its attempts by its timeout.
func (p Plan) longestCall(c Case) time.Duration {
	made, ok := p.policy(c)
	timeout := c.Load.WithDefaults().Timeout
	if !ok {
		return timeout
	}
	timeout = cmp.Or(made.AttemptTimeout, timeout)
	all := timeout
	if r := made.Retry; r != nil {
		all = time.Duration(r.MaxAttempts)*timeout + time.Duration(r.MaxAttempts-1)*longest(r)
	}
	if made.CallTimeout > 0 {
		all = min(all, made.CallTimeout)
	}
	return all
}
