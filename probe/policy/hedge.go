package policy

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"netemd/probe"
)

// minSeen are the attempts that a percentile is of at least.
const minSeen = 10

// raced is how one of the attempts of a race ended.
type raced struct {
	outcome
	hedge bool
}

// hedge puts a Hedge around attempts.
func (k *Client) hedge(inner next) next {
	h := k.policy.Hedge
	seen := &recent{size: h.Window}
	return func(ctx context.Context, c *call) outcome {
		race, cancel := context.WithCancel(ctx) // of all when the first has answered
		defer cancel()
		results := make(chan raced, h.Max+1)
		start := func(hedge bool) {
			c.running.Go(func() {
				began := k.clock.Now()
				o := inner(race, c)
				if o.class == probe.OK {
					seen.add(time.Duration(k.clock.Now() - began))
				}
				results <- raced{o, hedge}
			})
		}
		start(false)
		delay, due, stop := k.arm(seen)
		defer func() { stop() }()
		for under, hedges := 1, 0; ; {
			select {
			case r := <-results:
				under--
				if r.class == probe.OK {
					if r.hedge {
						c.event(probe.PolicyEvent{Policy: ofHedge, Event: used, Attempt: r.attempt})
					}
					return r.outcome
				}
				if under == 0 {
					return r.outcome
				}
			case <-due:
				due = nil
				if ctx.Err() != nil {
					continue
				}
				if k.budget != nil && !k.budget.withdraw() {
					c.event(probe.PolicyEvent{Policy: ofBudget, Event: refused, Detail: ofHedge})
					continue
				}
				c.event(probe.PolicyEvent{Policy: ofHedge, Event: fired, Attempt: c.made() + 1, DelayNS: int64(delay)})
				start(true)
				under++
				if hedges++; hedges < h.Max {
					delay, due, stop = k.arm(seen)
				}
			}
		}
	}
}

// arm sets the time of the next hedge; due is nil where there is none yet.
func (k *Client) arm(seen *recent) (delay time.Duration, due <-chan struct{}, stop func()) {
	h := k.policy.Hedge
	delay = h.Delay
	if h.Percentile > 0 {
		if d, ok := seen.percentile(h.Percentile); ok {
			delay = d
		}
	}
	if delay == 0 {
		return 0, nil, func() {}
	}
	due, stop = timer(k.clock, delay)
	return delay, due, stop
}

// recent are the last durations.
type recent struct {
	size int

	mu   sync.Mutex
	ring []time.Duration
	next int
}

func (r *recent) add(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < r.size {
		r.ring = append(r.ring, d)
		return
	}
	r.ring[r.next] = d
	r.next = (r.next + 1) % r.size
}

// percentile is the nearest rank; false until enough were seen.
func (r *recent) percentile(share float64) (time.Duration, bool) {
	r.mu.Lock()
	sorted := slices.Clone(r.ring)
	r.mu.Unlock()
	if len(sorted) < minSeen {
		return 0, false
	}
	slices.Sort(sorted)
	rank := int(math.Ceil(share*float64(len(sorted)) - 1e-9)) // 0.95 x 100 is 95
	return sorted[max(rank, 1)-1], true
}
