package policy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"netemd/probe"
)

// The policies and events of probe.PolicyEvent.
const (
	ofTimeout  = "timeout"
	ofRetry    = "retry"
	ofBudget   = "budget"
	ofBreaker  = "breaker"
	ofBulkhead = "bulkhead"
	ofHedge    = "hedge"
	ofFallback = "fallback"
	ofCache    = "cache"
	ofDeadline = "deadline"

	fired      = "fired"
	scheduled  = "scheduled"
	exhausted  = "exhausted"
	opened     = "opened"
	halfOpened = "half_opened"
	closed     = "closed"
	refused    = "rejected"
	permitted  = "permitted"
	used       = "used"
)

// Events are what the policies do, each as POLICY.EVENT.
func Events() (all []string) {
	for _, p := range []struct {
		policy string
		events []string
	}{
		{ofTimeout, []string{fired}},
		{ofRetry, []string{scheduled, fired, exhausted, refused}},
		{ofBudget, []string{refused}},
		{ofBreaker, []string{opened, halfOpened, closed, refused, permitted}},
		{ofBulkhead, []string{refused, permitted}},
		{ofHedge, []string{fired, used}},
		{ofFallback, []string{used}},
		{ofCache, []string{used, exhausted}},
		{ofDeadline, []string{exhausted}},
	} {
		for _, e := range p.events {
			all = append(all, p.policy+"."+e)
		}
	}
	return all
}

// callTimeout bounds the call.
func (k *Client) callTimeout(inner next) next {
	limit := k.policy.CallTimeout
	return func(ctx context.Context, c *call) outcome {
		c.ends = k.clock.Now() + int64(limit)
		bounded, cancel := k.clock.WithTimeout(ctx, limit)
		defer cancel()
		c.deadline, _ = bounded.Deadline()
		o := inner(bounded, c)
		if o.class == probe.OK || !ranOut(bounded, ctx) || c.hadEnded(o) {
			return o
		}
		c.event(probe.PolicyEvent{TimeNS: c.ends, Policy: ofTimeout, Event: fired, DelayNS: int64(limit), Detail: "call"})
		return outcome{class: probe.Timeout, err: fmt.Sprintf("the call's timeout of %s: %s", short(limit), o.err), attempt: o.attempt}
	}
}

// attemptTimeout bounds one attempt.
func (k *Client) attemptTimeout(inner next) next {
	limit := k.policy.AttemptTimeout
	return func(ctx context.Context, c *call) outcome {
		at := k.clock.Now() + int64(limit)
		bounded, cancel := k.clock.WithTimeout(ctx, limit)
		defer cancel()
		o := inner(bounded, c)
		// What the client reports as something of its own came before the timeout.
		if o.attempt == 0 || o.class != probe.Timeout && o.class != probe.Other || !ranOut(bounded, ctx) {
			return o
		}
		c.event(probe.PolicyEvent{TimeNS: at, Policy: ofTimeout, Event: fired, Attempt: o.attempt, DelayNS: int64(limit), Detail: "attempt"})
		c.timedOut(o.attempt)
		o.class = probe.Timeout
		return o
	}
}

// hadEnded reports that an outcome is an attempt's own, which had ended before the call's
// timeout, and that nothing was waited for after it but that the client parted from its
// peer, which may take 0.1 s.
func (c *call) hadEnded(o outcome) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o.attempt == 0 || o.attempt < len(c.attempts) || o.class != c.attempts[o.attempt-1].Class || c.attempts[o.attempt-1].EndNS >= c.ends {
		return false
	}
	for _, e := range c.events {
		if e.Policy == ofRetry && e.Event == scheduled && e.Attempt > o.attempt {
			return false
		}
	}
	return true
}

// ranOut reports that the deadline of ctx has passed, and is its own and not the outer
// one's.
func ranOut(ctx, outer context.Context) bool {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return false
	}
	own, _ := ctx.Deadline()
	others, ok := outer.Deadline()
	return !ok || own.Before(others)
}

// left is the time until at, for an error's text.
func left(now, at int64) string {
	return time.Duration(max(at-now, 0)).Round(time.Millisecond).String()
}
