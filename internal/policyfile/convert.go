package policyfile

import (
	"math"

	"netemd/probe/policy"
	"netemd/qdisc"
)

// policy is what the keys say.
func (f Keys) policy(name string) policy.Policy {
	p := policy.Policy{
		Name: name, Summary: f.Summary, Order: f.Order, CallTimeout: f.Timeout.Call, AttemptTimeout: f.Timeout.Attempt,
	}
	if r := f.Retry; r != nil {
		p.Retry = &policy.Retry{MaxAttempts: r.MaxAttempts, Backoff: r.Backoff, Base: r.Base, Factor: float64(r.Factor), MaxDelay: r.MaxDelay, IgnorePushback: r.Obey != nil && !*r.Obey, On: r.On}
	}
	if b := f.Budget; b != nil {
		p.Budget = &policy.Budget{Ratio: share(b.Ratio), MaxTokens: b.MaxTokens, PerSecond: b.PerSecond}
	}
	if h := f.Hedge; h != nil {
		p.Hedge = &policy.Hedge{Delay: h.Delay, Percentile: share(h.Percentile), Window: h.Window, Max: h.Max}
	}
	if b := f.Breaker; b != nil {
		p.Breaker = &policy.Breaker{
			Consecutive: b.Consecutive, Ratio: share(b.Ratio), Calls: b.Window.Calls, Period: b.Window.Time, MinCalls: b.MinCalls,
			Open: b.Open, Probes: b.Probes, Successes: b.Successes, On: b.On,
		}
	}
	if b := f.Bulkhead; b != nil {
		p.Bulkhead = &policy.Bulkhead{Concurrent: b.Concurrent, Queue: b.Queue, Wait: b.Wait}
	}
	if b := f.Fallback; b != nil {
		p.Fallback = &policy.Fallback{Answer: b.Answer, MaxAge: b.MaxAge, On: b.On}
	}
	if d := f.Deadline; d != nil {
		p.Deadline = &policy.Deadline{Pass: d.Pass, Reserve: d.Reserve}
	}
	if i := f.Idempotency; i != nil {
		p.Idempotency = &policy.Idempotency{Key: i.Key}
	}
	return p
}

// keys are a policy as a file has it.
func keys(p policy.Policy) file {
	f := file{Name: p.Name, Keys: Keys{Summary: p.Summary, Order: p.Order, Timeout: timeout{Call: p.CallTimeout, Attempt: p.AttemptTimeout}}}
	if r := p.Retry; r != nil {
		f.Retry = &retry{MaxAttempts: r.MaxAttempts, Backoff: r.Backoff, Base: r.Base, Factor: factor(r.Factor), MaxDelay: r.MaxDelay, On: r.On}
		if r.IgnorePushback {
			f.Retry.Obey = new(false)
		}
	}
	if b := p.Budget; b != nil {
		f.Budget = &budget{Ratio: percent(b.Ratio), MaxTokens: b.MaxTokens, PerSecond: b.PerSecond}
	}
	if h := p.Hedge; h != nil {
		f.Hedge = &hedge{Delay: h.Delay, Percentile: percent(h.Percentile), Window: h.Window, Max: h.Max}
	}
	if b := p.Breaker; b != nil {
		f.Breaker = &breaker{
			Consecutive: b.Consecutive, Ratio: percent(b.Ratio), Window: window{Calls: b.Calls, Time: b.Period}, MinCalls: b.MinCalls,
			Open: b.Open, Probes: b.Probes, Successes: b.Successes, On: b.On,
		}
	}
	if b := p.Bulkhead; b != nil {
		f.Bulkhead = &bulkhead{Concurrent: b.Concurrent, Queue: b.Queue, Wait: b.Wait}
	}
	if b := p.Fallback; b != nil {
		f.Fallback = &fallback{Answer: b.Answer, MaxAge: b.MaxAge, On: b.On}
	}
	if d := p.Deadline; d != nil {
		f.Deadline = &deadline{Pass: d.Pass, Reserve: d.Reserve}
	}
	if i := p.Idempotency; i != nil {
		f.Idempotency = &idempotency{Key: i.Key}
	}
	return f
}

// share and percent are one another's inverse: 7% is 0.07, and that is 7%.
func share(p qdisc.Percent) float64   { return float64(p) / 100 }
func percent(f float64) qdisc.Percent { return qdisc.Percent(math.Round(f*1e12) / 1e10) }
