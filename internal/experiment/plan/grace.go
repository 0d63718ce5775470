package plan

import (
	"math"
	"time"

	"netemd/internal/policyfile"
	"netemd/probe/policy"
)

// Grace is how much later than a fault's end a retry may begin that it caused: the time of one
// attempt and the longest pause of the case's policy. A policy whose text is not in the plan
// has no pause.
func (p Plan) Grace(c Case) time.Duration {
	grace := c.Load.WithDefaults().Timeout
	made, ok := p.policy(c)
	if !ok {
		return grace
	}
	if made.AttemptTimeout > 0 {
		grace = made.AttemptTimeout
	}
	return grace + longest(made.Retry)
}

// policy is a case's own, with its defaults; false where there is none whose text is there.
func (p Plan) policy(c Case) (policy.Policy, bool) {
	made, err := policyfile.Parse(c.Policy, p.Policies[c.Policy])
	if c.Policy == "" || err != nil {
		return policy.Policy{}, false
	}
	return made.WithDefaults(), true
}

// longest is the longest pause of a retry: of a backoff that grows, the one before the last
// attempt.
func longest(r *policy.Retry) time.Duration {
	switch {
	case r == nil || r.MaxAttempts < 2 || r.Backoff == policy.None:
		return 0
	case r.Backoff == policy.Fixed:
		return r.Base
	case r.Backoff == policy.DecorrelatedJitter:
		return r.MaxDelay
	}
	return time.Duration(min(float64(r.MaxDelay), float64(r.Base)*math.Pow(r.Factor, float64(r.MaxAttempts-2))))
}
