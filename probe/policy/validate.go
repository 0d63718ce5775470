package policy

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"netemd/probe"
)

// The ranges and defaults of a Policy's numbers.
const (
	MaxCallTimeout     = time.Hour
	DefaultMaxAttempts = 3
	MaxMaxAttempts     = 100
	DefaultBase        = 100 * time.Millisecond
	DefaultFactor      = 2
	DefaultMaxDelay    = 30 * time.Second
	DefaultRatio       = 0.2
	DefaultMaxTokens   = 10
	DefaultWindow      = 100
	DefaultConsecutive = 5
	DefaultMinCalls    = 10
	DefaultOpen        = 10 * time.Second
	DefaultConcurrent  = 10

	longest = 10 * time.Minute
)

// errorClasses are what a call can end with that is no success and was asked of the peer.
var errorClasses = []probe.Class{probe.Timeout, probe.Refused, probe.Reset, probe.EOF, probe.Protocol, probe.Server, probe.Other}

// WithDefaults is p with every zero field of the parts that are there set to its default.
// It shares nothing with p that is changed later.
func (p Policy) WithDefaults() Policy {
	p.Order = slices.Clone(p.Order)
	p.Retry, p.Budget, p.Hedge, p.Breaker = copied(p.Retry), copied(p.Budget), copied(p.Hedge), copied(p.Breaker)
	p.Bulkhead, p.Fallback, p.Deadline, p.Idempotency = copied(p.Bulkhead), copied(p.Fallback), copied(p.Deadline), copied(p.Idempotency)
	if r := p.Retry; r != nil {
		set(&r.MaxAttempts, DefaultMaxAttempts)
		set(&r.Backoff, None)
		set(&r.Base, DefaultBase)
		set(&r.Factor, DefaultFactor)
		set(&r.MaxDelay, max(DefaultMaxDelay, r.Base))
		r.On = classes(r.On, errorClasses...)
	}
	if b := p.Budget; b != nil {
		set(&b.Ratio, DefaultRatio)
		set(&b.MaxTokens, DefaultMaxTokens)
	}
	if h := p.Hedge; h != nil {
		set(&h.Window, DefaultWindow)
		set(&h.Max, 1)
	}
	if b := p.Breaker; b != nil {
		if b.Ratio == 0 {
			set(&b.Consecutive, DefaultConsecutive)
		} else {
			if b.Period == 0 {
				set(&b.Calls, DefaultWindow)
			}
			set(&b.MinCalls, DefaultMinCalls)
			if b.Calls > 0 {
				b.MinCalls = min(b.MinCalls, b.Calls)
			}
		}
		set(&b.Open, DefaultOpen)
		set(&b.Probes, 1)
		set(&b.Successes, b.Probes)
		b.On = classes(b.On, errorClasses...)
	}
	if b := p.Bulkhead; b != nil {
		set(&b.Concurrent, DefaultConcurrent)
	}
	if f := p.Fallback; f != nil {
		set(&f.Answer, AnswerDefault)
		f.On = classes(f.On, append([]probe.Class{probe.Rejected}, errorClasses...)...)
	}
	if d := p.Deadline; d != nil {
		set(&d.Pass, PassAttempt)
	}
	if i := p.Idempotency; i != nil {
		set(&i.Key, PerCall)
	}
	return p
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func classes(given []probe.Class, otherwise ...probe.Class) []probe.Class {
	if len(given) > 0 {
		return slices.Clone(given)
	}
	return otherwise
}

// Validate returns every field that is out of its range, each as a *probe.RequestError
// with the field's name ("retry.max_attempts"), joined. A zero field stands for its default.
func (p Policy) Validate() error {
	var errs []error
	refuse := func(bad bool, field, value, want string) {
		if bad {
			errs = append(errs, &probe.RequestError{Field: field, Value: value, Want: want})
		}
	}
	c := check{refuse}
	c.duration("timeout.call", p.CallTimeout, probe.MinTimeout, MaxCallTimeout)
	c.duration("timeout.attempt", p.AttemptTimeout, probe.MinTimeout, probe.MaxTimeout)
	refuse(p.CallTimeout != 0 && p.AttemptTimeout > p.CallTimeout, "timeout.attempt", p.AttemptTimeout.String(), "at most the call's, "+p.CallTimeout.String())
	p.Retry.check(c)
	p.Budget.check(c)
	refuse(p.Budget != nil && p.Retry == nil && p.Hedge == nil, "budget", "", "retry or hedge beside it, which take its tokens")
	p.Hedge.check(c)
	p.Breaker.check(c)
	p.Bulkhead.check(c)
	if f := p.Fallback; f != nil {
		c.word("fallback.answer", f.Answer, AnswerDefault, AnswerCached)
		c.duration("fallback.max_age", f.MaxAge, 0, 24*time.Hour)
		refuse(f.MaxAge != 0 && f.Answer != AnswerCached, "fallback.max_age", f.MaxAge.String(), "answer: cached beside it")
		c.classes("fallback.on", f.On, append(errorClasses, probe.Rejected)...)
	}
	if d := p.Deadline; d != nil {
		c.word("deadline.pass", d.Pass, PassAttempt, PassCall)
		c.duration("deadline.reserve", d.Reserve, 0, time.Minute)
		refuse(d.Pass == PassCall && p.CallTimeout == 0, "deadline.pass", d.Pass, "timeout.call beside it")
	}
	if i := p.Idempotency; i != nil {
		c.word("idempotency.key", i.Key, PerCall, PerAttempt, PerRun)
	}
	p.checkOrder(refuse)
	return errors.Join(errs...)
}

func (r *Retry) check(c check) {
	if r == nil {
		return
	}
	c.number("retry.max_attempts", r.MaxAttempts, 1, MaxMaxAttempts)
	c.word("retry.backoff", string(r.Backoff), string(None), string(Fixed), string(Exponential), string(FullJitter), string(EqualJitter), string(DecorrelatedJitter))
	c.duration("retry.base", r.Base, time.Microsecond, longest)
	c.refuse(!(r.Factor == 0 || r.Factor >= 1 && r.Factor <= 10), "retry.factor", number(r.Factor), "a number from 1 to 10, such as 1.5")
	c.duration("retry.max_delay", r.MaxDelay, time.Microsecond, time.Hour)
	base := r.Base
	set(&base, DefaultBase)
	c.refuse(r.MaxDelay > 0 && r.MaxDelay < base, "retry.max_delay", r.MaxDelay.String(), "at least the base, "+base.String())
	c.classes("retry.on", r.On, append(errorClasses, probe.Rejected)...)
}

func (b *Budget) check(c check) {
	if b == nil {
		return
	}
	c.refuse(!(b.Ratio >= 0 && b.Ratio <= 1), "budget.ratio", percent(b.Ratio), "a percentage above 0% and up to 100%, such as 10%")
	c.number("budget.max_tokens", b.MaxTokens, 1, 100_000)
	c.number("budget.per_second", b.PerSecond, 0, 10_000)
}

func (h *Hedge) check(c check) {
	if h == nil {
		return
	}
	c.duration("hedge.delay", h.Delay, time.Microsecond, longest)
	c.refuse(!(h.Percentile >= 0 && h.Percentile < 1), "hedge.percentile", percent(h.Percentile), "a percentage above 0% and below 100%, such as 95%")
	c.refuse(h.Delay == 0 && h.Percentile == 0, "hedge.delay", "", "a duration, such as 50ms, or percentile beside it")
	c.number("hedge.window", h.Window, minSeen, 1000)
	c.number("hedge.max", h.Max, 1, 10)
}

func (b *Breaker) check(c check) {
	if b == nil {
		return
	}
	c.number("breaker.consecutive", b.Consecutive, 1, 10_000)
	c.refuse(!(b.Ratio >= 0 && b.Ratio <= 1), "breaker.ratio", percent(b.Ratio), "a percentage above 0% and up to 100%, such as 50%")
	c.number("breaker.window.calls", b.Calls, 1, 10_000)
	c.duration("breaker.window.time", b.Period, 100*time.Millisecond, time.Hour)
	c.refuse(b.Calls != 0 && b.Period != 0, "breaker.window", "", "calls or time, not both")
	c.refuse(b.Ratio == 0 && (b.Calls != 0 || b.Period != 0), "breaker.window", "", "ratio beside it")
	c.refuse(b.Ratio == 0 && b.MinCalls != 0, "breaker.min_calls", strconv.Itoa(b.MinCalls), "ratio beside it")
	most := 10_000
	if b.Calls > 0 {
		most = b.Calls
	} else if b.Period == 0 {
		most = DefaultWindow
	}
	c.number("breaker.min_calls", b.MinCalls, 1, most)
	c.duration("breaker.open", b.Open, time.Millisecond, time.Hour)
	c.number("breaker.probes", b.Probes, 1, 1000)
	c.number("breaker.successes", b.Successes, 1, max(b.Probes, 1))
	c.classes("breaker.on", b.On, errorClasses...)
}

func (b *Bulkhead) check(c check) {
	if b == nil {
		return
	}
	c.number("bulkhead.concurrent", b.Concurrent, 1, 100_000)
	c.number("bulkhead.queue", b.Queue, 0, 1_000_000)
	c.duration("bulkhead.wait", b.Wait, 0, longest)
	c.refuse(b.Wait != 0 && b.Queue == 0, "bulkhead.wait", b.Wait.String(), "queue beside it: nobody waits without one")
}

// check refuses values in the words that follow "want".
type check struct {
	refuse func(bad bool, field, value, want string)
}

// number and duration refuse what is out of range; 0 is the default.
func (c check) number(field string, v, least, most int) {
	c.refuse(v != 0 && (v < least || v > most), field, strconv.Itoa(v), fmt.Sprintf("a number from %d to %d", least, most))
}

func (c check) duration(field string, v, least, most time.Duration) {
	c.refuse(v != 0 && (v < least || v > most), field, v.String(), fmt.Sprintf("a duration from %s to %s", short(least), short(most)))
}

func (c check) word(field, v string, allowed ...string) {
	last := len(allowed) - 1
	c.refuse(v != "" && !slices.Contains(allowed, v), field, v, join(allowed[:last])+" or "+allowed[last])
}

func (c check) classes(field string, given []probe.Class, allowed ...probe.Class) {
	for i, g := range given {
		name := fmt.Sprintf("%s[%d]", field, i)
		c.refuse(!slices.Contains(allowed, g), name, string(g), "one of "+join(allowed))
		c.refuse(slices.Contains(given[:i], g), name, string(g), "each class once")
	}
}

// short is a duration without parts that are zero: 10m, not 10m0s.
func short(d time.Duration) string {
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "us"}} {
		if d != 0 && d%unit.size == 0 {
			return strconv.FormatInt(int64(d/unit.size), 10) + unit.name
		}
	}
	return d.String()
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// percent is a share as people write it; a share of 0.07 is 7%, whatever its last bit says.
func percent(f float64) string { return number(math.Round(f*1e12)/1e10) + "%" }
