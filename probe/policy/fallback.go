package policy

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/fallback"

	"netemd/probe"
)

// answering is one call's way through a fallback.
type answering struct {
	c    *call
	last outcome
}

// fallback answers where what is inside has failed. When it does is failsafe-go's to know.
func (k *Client) fallback(inner next) next {
	f := k.policy.Fallback
	var cached atomic.Int64 // when the last good answer came
	answer := fallback.NewBuilderWithFunc(func(e failsafe.Execution[*answering]) (*answering, error) {
		a := e.LastResult()
		why := string(a.last.class) + ": " + a.last.err
		switch at := cached.Load(); {
		case f.Answer == AnswerDefault:
			a.c.event(probe.PolicyEvent{Policy: ofFallback, Event: used, Attempt: a.last.attempt, Detail: why})
		case at == 0:
			a.c.event(probe.PolicyEvent{Policy: ofCache, Event: exhausted, Detail: "nothing is in it"})
			return a, nil
		case f.MaxAge > 0 && k.clock.Now()-at > int64(f.MaxAge):
			a.c.event(probe.PolicyEvent{Policy: ofCache, Event: exhausted, Detail: "what is in it is older than " + short(f.MaxAge)})
			return a, nil
		default:
			age := time.Duration(k.clock.Now() - at).Round(time.Millisecond)
			a.c.event(probe.PolicyEvent{Policy: ofCache, Event: used, Attempt: a.last.attempt, Detail: "of " + age.String() + " ago; " + why})
		}
		a.last = outcome{class: probe.OK, degraded: f.Answer}
		return a, nil
	}).HandleIf(func(a *answering, _ error) bool { return slices.Contains(f.On, a.last.class) }).Build()
	return func(ctx context.Context, c *call) outcome {
		a := &answering{c: c}
		_, _ = failsafe.With(failsafe.Policy[*answering](answer)).WithContext(ctx).Get(func() (*answering, error) {
			if a.last = inner(ctx, c); a.last.class == probe.OK {
				cached.Store(k.clock.Now())
			}
			return a, nil
		})
		return a.last
	}
}
