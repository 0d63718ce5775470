package policy

import (
	"context"
	"slices"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/retrypolicy"

	"netemd/probe"
)

// retrying is one call's way through the loop of attempts.
type retrying struct {
	c     *call
	last  outcome
	tries int
	// pause is the wait before the next attempt, and then the one before it.
	pause time.Duration
}

// retry makes attempts until one needs no other. The loop is failsafe-go's; the pauses are
// ours, since it has no clock, and are done when it says that a retry is scheduled.
func (k *Client) retry(inner next) next {
	r := k.policy.Retry
	loop := retrypolicy.NewBuilder[*retrying]().
		WithMaxAttempts(r.MaxAttempts).
		HandleIf(func(t *retrying, _ error) bool { return slices.Contains(r.On, t.last.class) }).
		AbortIf(func(t *retrying, _ error) bool { return t.tries < r.MaxAttempts && !k.again(t) }).
		ReturnLastFailure().
		OnRetriesExceeded(func(e failsafe.ExecutionEvent[*retrying]) {
			t := e.LastResult()
			if r.MaxAttempts > 1 {
				t.c.event(probe.PolicyEvent{Policy: ofRetry, Event: exhausted, Attempt: t.last.attempt})
			}
		}).
		OnRetryScheduled(func(e failsafe.ExecutionScheduledEvent[*retrying]) {
			rest(e.Context(), k.clock, e.LastResult().pause) // it looks at the context by itself
		}).
		OnRetry(func(e failsafe.ExecutionEvent[*retrying]) {
			c := e.LastResult().c
			c.event(probe.PolicyEvent{Policy: ofRetry, Event: fired, Attempt: c.made() + 1})
		}).
		Build()
	return func(ctx context.Context, c *call) outcome {
		t := &retrying{c: c}
		// The result is t's: when the context ends, it would be no more than that.
		_, _ = failsafe.With(failsafe.Policy[*retrying](loop)).WithContext(ctx).Get(func() (*retrying, error) {
			t.last = inner(ctx, c)
			t.tries++
			return t, nil
		})
		return t.last
	}
}

// again decides whether another attempt follows the one that failed, and when.
func (k *Client) again(t *retrying) bool {
	c, now := t.c, k.clock.Now()
	t.pause = k.policy.Retry.delay(t.tries, t.pause, source(k.seed, c.seq, t.tries))
	why := string(t.last.class)
	if !k.policy.Retry.IgnorePushback {
		asked, longest := time.Duration(t.last.pushback), k.policy.Retry.MaxDelay
		switch {
		case asked == probe.NoRetry:
			c.event(probe.PolicyEvent{Policy: ofRetry, Event: refused, Attempt: t.last.attempt, Detail: "the server asks for no other attempt"})
			return false
		case asked > longest:
			c.event(probe.PolicyEvent{Policy: ofRetry, Event: refused, Attempt: t.last.attempt, DelayNS: int64(asked), Detail: "the server asks for a pause above the longest, " + short(longest)})
			return false
		case asked > t.pause:
			t.pause, why = asked, why+"; the pause is the server's"
		}
	}
	if k.policy.Deadline != nil && c.ends > 0 && now+int64(t.pause) >= c.ends {
		c.event(probe.PolicyEvent{Policy: ofDeadline, Event: exhausted, DelayNS: int64(t.pause), Detail: "a retry would begin after the end of the call, which is in " + left(now, c.ends)})
		return false
	}
	if k.budget != nil && !k.budget.withdraw() {
		c.event(probe.PolicyEvent{Policy: ofBudget, Event: refused, Attempt: t.last.attempt, Detail: ofRetry})
		return false
	}
	c.event(probe.PolicyEvent{Policy: ofRetry, Event: scheduled, Attempt: c.made() + 1, DelayNS: int64(t.pause), Detail: why})
	return true
}
