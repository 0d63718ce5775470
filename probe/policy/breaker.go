package policy

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"netemd/probe"
)

// gate is what lets attempts through, or not, and hears how they ended. note is told of
// each change, in its order.
type gate interface {
	acquire(note func(probe.PolicyEvent)) (t ticket, ok bool)
	record(t ticket, v verdict, note func(probe.PolicyEvent))
}

// ticket is of an attempt that was let through.
type ticket struct {
	// epoch is the state's in which it was, so that it is known when that is over.
	epoch int
}

// verdict is what an attempt says about the peer.
type verdict int

const (
	failure verdict = iota
	success
	nothing
)

// breaker puts a gate around attempts.
func (k *Client) breaker(g gate, inner next) next {
	on := k.policy.Breaker.On
	return func(ctx context.Context, c *call) outcome {
		t, ok := g.acquire(c.event)
		if !ok {
			return rejected("the breaker is open")
		}
		o := inner(ctx, c)
		v := success
		switch {
		case o.class == probe.Rejected || o.class == probe.Cancelled:
			v = nothing
		case slices.Contains(on, o.class):
			v = failure
		}
		g.record(t, v, func(e probe.PolicyEvent) {
			e.Attempt = o.attempt
			c.event(e)
		})
		return o
	}
}

type state int

const (
	isClosed state = iota
	isOpen
	isHalfOpen
)

func (s state) String() string { return [...]string{"closed", "open", "half-open"}[s] }

// breaker is a Breaker's state.
type breaker struct {
	Breaker
	clock Clock

	mu    sync.Mutex
	state state
	// epoch counts the changes of state: what was begun in another one is late.
	epoch int
	// until is when an open one becomes half-open.
	until int64
	// row are the failures in a row, and window the last results, of a closed one.
	row    int
	window *window
	// out are the probes under way, passed and failed those that ended, of a half-open one.
	out, passed, failed int
}

func newBreaker(b Breaker, clock Clock) *breaker {
	k := &breaker{Breaker: b, clock: clock}
	if b.Ratio > 0 {
		k.window = newWindow(b.Calls, b.Period)
	}
	return k
}

func (b *breaker) acquire(note func(probe.PolicyEvent)) (ticket, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.clock.Now()
	if b.state == isOpen && now >= b.until {
		b.change(isHalfOpen)
		note(probe.PolicyEvent{Policy: ofBreaker, Event: halfOpened, Detail: fmt.Sprintf("lets %d through", b.Probes)})
	}
	switch {
	case b.state == isOpen:
		note(probe.PolicyEvent{Policy: ofBreaker, Event: refused, Detail: "open for " + left(now, b.until) + " more"})
		return ticket{}, false
	case b.state == isHalfOpen && b.out+b.passed+b.failed >= b.Probes:
		note(probe.PolicyEvent{Policy: ofBreaker, Event: refused, Detail: "half-open, every probe is under way"})
		return ticket{}, false
	case b.state == isHalfOpen:
		b.out++
		note(probe.PolicyEvent{Policy: ofBreaker, Event: permitted, Detail: fmt.Sprintf("probe %d of %d", b.out+b.passed+b.failed, b.Probes)})
	}
	return ticket{epoch: b.epoch}, true
}

func (b *breaker) record(t ticket, v verdict, note func(probe.PolicyEvent)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case t.epoch != b.epoch: // late
	case b.state == isHalfOpen:
		b.probed(v, note)
	case v != nothing:
		b.count(v == failure, note)
	}
}

// count takes a result of a closed breaker.
func (b *breaker) count(failed bool, note func(probe.PolicyEvent)) {
	if b.row++; !failed {
		b.row = 0
	}
	if b.window != nil {
		b.window.add(b.clock.Now(), failed)
	}
	switch {
	case b.Consecutive > 0 && b.row >= b.Consecutive:
		b.trip(fmt.Sprintf("%d failures in a row", b.row), note)
	case b.window != nil && b.window.n >= b.MinCalls && float64(b.window.failed) >= b.Ratio*float64(b.window.n):
		b.trip(fmt.Sprintf("%d of the last %d failed", b.window.failed, b.window.n), note)
	}
}

// probed takes the result of a probe.
func (b *breaker) probed(v verdict, note func(probe.PolicyEvent)) {
	b.out--
	switch v {
	case success:
		b.passed++
	case failure:
		b.failed++
	}
	switch {
	case b.passed >= b.Successes:
		b.change(isClosed)
		note(probe.PolicyEvent{Policy: ofBreaker, Event: closed})
	case b.failed > b.Probes-b.Successes:
		b.trip("a probe failed", note)
	}
}

func (b *breaker) trip(why string, note func(probe.PolicyEvent)) {
	b.change(isOpen)
	b.until = b.clock.Now() + int64(b.Open)
	note(probe.PolicyEvent{Policy: ofBreaker, Event: opened, DelayNS: int64(b.Open), Detail: why})
}

// change goes to a state, which knows nothing of what was before.
func (b *breaker) change(s state) {
	b.state = s
	b.epoch++
	b.row, b.out, b.passed, b.failed = 0, 0, 0, 0
	if b.window != nil {
		b.window.reset()
	}
}
