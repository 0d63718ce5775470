package policy

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"netemd/probe"
)

// Options of New. The zero value is one for use.
type Options struct {
	// Clock that all waits go through; nil: Real.
	Clock Clock
	// Seed of what is drawn.
	Seed uint64
	// AttemptTimeout bounds each attempt where the policy has no limit of its own; 0: nothing
	// does but the context of the call.
	AttemptTimeout time.Duration
	// Unsafe says that a call changes something at the peer. It is hedged only if it has an
	// idempotency key.
	Unsafe bool
	// NewKey makes idempotency keys; nil: random UUIDs.
	NewKey func() string
}

// Client is a probe.Caller whose calls are protected by a Policy. It is safe for
// concurrent use; breaker, bulkhead, budget and cache are one for all its calls.
type Client struct {
	inner  probe.Caller
	policy Policy
	clock  Clock
	seed   uint64
	newKey func() string
	// key is that of all calls; empty unless it is PerRun.
	key    string
	budget *budget
	chain  next
}

// next is what a layer stands around.
type next func(ctx context.Context, c *call) outcome

// New puts p around inner. The error is p.Validate's, or a *probe.RequestError for a hedge of
// calls that may not be made twice.
func New(p Policy, inner probe.Caller, o Options) (*Client, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if o.Unsafe && p.Hedge != nil && (p.Idempotency == nil || p.Idempotency.Key == PerAttempt) {
		return nil, &probe.RequestError{Field: "hedge", Value: "on calls that change something", Want: "idempotency with key: per_call beside it, or no hedge"}
	}
	k := &Client{inner: inner, policy: p.WithDefaults(), clock: o.Clock, seed: o.Seed, newKey: o.NewKey}
	if k.clock == nil {
		k.clock = Real{}
	}
	if k.newKey == nil {
		k.newKey = newKey
	}
	if i := k.policy.Idempotency; i != nil && i.Key == PerRun {
		k.key = k.newKey()
	}
	if k.policy.Budget != nil {
		k.budget = newBudget(*k.policy.Budget, k.clock)
	}
	layers := k.policy.Layers()
	if k.policy.AttemptTimeout == 0 && o.AttemptTimeout > 0 {
		k.policy.AttemptTimeout = o.AttemptTimeout
		layers = append(layers, LayerAttemptTimeout)
	}
	k.chain = k.attempt
	for _, l := range slices.Backward(layers) {
		k.chain = k.layer(l, k.chain)
	}
	return k, nil
}

func (k *Client) layer(l Layer, inner next) next {
	switch l {
	case LayerFallback:
		return k.fallback(inner)
	case LayerTimeout:
		return k.callTimeout(inner)
	case LayerRetry:
		return k.retry(inner)
	case LayerHedge:
		return k.hedge(inner)
	case LayerBreaker:
		return k.breaker(newBreaker(*k.policy.Breaker, k.clock), inner)
	case LayerBulkhead:
		return k.bulkhead(inner)
	}
	return k.attemptTimeout(inner)
}

// Call makes one logical call. Its sample has every attempt that was made and every event,
// by time. The class is that of the attempt that decided it; timeout where the call's own
// timeout ended it; probe.Rejected where no attempt was made; and probe.OK where a
// fallback answered, which Degraded says.
//
// It returns when all attempts have ended: one that was given up can outlive its context
// by what the inner caller allows itself, and EndNS is before that.
func (k *Client) Call(ctx context.Context, seq int) probe.Sample {
	c := &call{client: k, seq: seq, key: k.key, attempts: make([]probe.Sample, 0, 1)}
	if i := k.policy.Idempotency; i != nil && i.Key == PerCall {
		c.key = k.newKey()
	}
	if k.budget != nil {
		k.budget.deposit()
	}
	began := k.clock.Now()
	o := k.chain(ctx, c)
	ended := k.clock.Now()
	c.running.Wait()
	return c.finish(o, began, ended)
}

// Close closes the inner caller, where it can be.
func (k *Client) Close() error {
	if closer, ok := k.inner.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

// attempt is the innermost layer: the inner caller.
func (k *Client) attempt(ctx context.Context, c *call) outcome {
	n := c.begin()
	s := k.inner.Call(context.WithValue(ctx, contextKey{}, c.passed(ctx, n)), c.seq)
	s.Attempts = nil
	if s.Class != probe.OK && errors.Is(ctx.Err(), context.Canceled) {
		s.Class = probe.Cancelled
	}
	c.end(n, s)
	return outcome{class: s.Class, err: s.Error, attempt: n, pushback: s.PushbackNS}
}

// passed is what the attempt n is told.
func (c *call) passed(ctx context.Context, n int) passed {
	p := passed{attempt: n, key: c.key}
	k := c.client
	if i := k.policy.Idempotency; i != nil && i.Key == PerAttempt {
		p.key = k.newKey()
	}
	if d := k.policy.Deadline; d != nil {
		at, ok := ctx.Deadline()
		if d.Pass == PassCall {
			at = c.deadline
		}
		if ok {
			p.deadline = at.Add(-d.Reserve)
		}
	}
	return p
}

// outcome is what a layer hands to the one around it.
type outcome struct {
	class probe.Class
	err   string
	// attempt decided it; 0: none.
	attempt int
	// pushback is the attempt's probe.Sample.PushbackNS.
	pushback int64
	// degraded is the answer that was given in place of the peer's.
	degraded string
}

func rejected(why string) outcome { return outcome{class: probe.Rejected, err: why} }

// call is one logical call under way.
type call struct {
	client *Client
	seq    int
	key    string
	// deadline is the end of the call by its timeout, ends the same in ns; zero: none.
	deadline time.Time
	ends     int64
	running  sync.WaitGroup // hedged attempts

	mu       sync.Mutex
	attempts []probe.Sample
	events   []probe.PolicyEvent
}

func (c *call) begin() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts = append(c.attempts, probe.Sample{Seq: c.seq})
	return len(c.attempts)
}

func (c *call) end(n int, s probe.Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts[n-1] = s
}

// timedOut is told of an attempt that a timeout ended: clients report many things then.
func (c *call) timedOut(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempts[n-1].Class = probe.Timeout
}

// made is how many attempts were begun.
func (c *call) made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.attempts)
}

// event notes what a policy did, now unless it has its time.
func (c *call) event(e probe.PolicyEvent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.TimeNS == 0 {
		e.TimeNS = c.client.clock.Now()
	}
	c.events = append(c.events, e)
}

// finish is the call as a sample: all that its deciding attempt found out about the
// connection, and what became of the call.
func (c *call) finish(o outcome, began, ended int64) (s probe.Sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.attempts)
	switch {
	case o.class != probe.OK && last == 0:
		o.class = probe.Rejected
	case o.class == probe.Rejected: // after attempts: the last one says how the peer was
		a := c.attempts[last-1]
		o = outcome{class: a.Class, err: a.Error + "; then " + o.err, attempt: last}
	}
	if o.attempt > 0 {
		s = c.attempts[o.attempt-1]
	}
	slices.SortStableFunc(c.events, func(a, b probe.PolicyEvent) int { return cmp.Compare(a.TimeNS, b.TimeNS) })
	s.Seq, s.StartNS, s.EndNS = c.seq, began, ended
	s.Class, s.Error, s.Degraded = o.class, o.err, o.degraded
	s.Attempts, s.Policy = c.attempts, c.events
	return s
}
