package policy

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"netemd/probe"
)

// bulkhead puts a Bulkhead around attempts.
func (k *Client) bulkhead(inner next) next {
	b := &bulkhead{Bulkhead: *k.policy.Bulkhead, clock: k.clock}
	return func(ctx context.Context, c *call) outcome {
		began := k.clock.Now()
		waited, why := b.acquire(ctx)
		took := k.clock.Now() - began
		if why != "" {
			c.event(probe.PolicyEvent{Policy: ofBulkhead, Event: refused, DelayNS: took, Detail: why})
			return rejected("the bulkhead is full: " + why)
		}
		if waited {
			c.event(probe.PolicyEvent{Policy: ofBulkhead, Event: permitted, DelayNS: took})
		}
		defer b.release()
		return inner(ctx, c)
	}
}

// bulkhead is a Bulkhead's places and who waits for one.
type bulkhead struct {
	Bulkhead
	clock Clock

	mu      sync.Mutex
	running int
	// queue has a channel for each who waits, the first to come in front; it is closed when
	// a place is handed over.
	queue list.List
}

// acquire takes a place, or says why there is none.
func (b *bulkhead) acquire(ctx context.Context) (waited bool, why string) {
	b.mu.Lock()
	if b.running < b.Concurrent {
		b.running++
		b.mu.Unlock()
		return false, ""
	}
	if n := b.queue.Len(); n >= b.Queue {
		b.mu.Unlock()
		return false, fmt.Sprintf("%d under way and %d waiting", b.Concurrent, n)
	}
	place := make(chan struct{})
	mine := b.queue.PushBack(place)
	b.mu.Unlock()

	var over <-chan struct{}
	if b.Wait > 0 {
		end, stop := timer(b.clock, b.Wait)
		defer stop()
		over = end
	}
	select {
	case <-place:
		return true, ""
	case <-over:
		why = "waited " + short(b.Wait)
	case <-ctx.Done():
		why = "the call ended while it waited"
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-place: // handed over just now: it counts
		return true, ""
	default:
		b.queue.Remove(mine)
		return true, why
	}
}

// release hands the place to who waits longest.
func (b *bulkhead) release() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if first := b.queue.Front(); first != nil {
		close(b.queue.Remove(first).(chan struct{}))
		return
	}
	b.running--
}
