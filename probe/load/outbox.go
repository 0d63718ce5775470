package load

import (
	"context"
	"sync"
	"time"

	"netemd/probe"
)

const (
	// patience is how long beyond its budget a call may last before it is given up.
	patience = 15 * time.Second
	// gap is how long samples are gathered before they are told of: waking somebody for
	// each would cost as much as a small call does.
	gap = 2 * time.Millisecond
	// undelivered is how many samples may wait to be told of; beyond, calls keep their
	// places until theirs has been.
	undelivered = 8192
)

// outbox has the samples of started calls until they are told of, so that what ends a
// call never waits.
type outbox struct {
	run     *run
	filled  chan struct{}
	done    chan struct{}
	waiting sync.WaitGroup

	mu      sync.Mutex
	samples []probe.Sample
	held    int // places that are kept until the next delivery
}

// take takes the sample of a call that has ended.
func (o *outbox) take(s probe.Sample, cutOff bool) {
	l := o.run
	l.ended(l.clock.Now(), cutOff)
	if cutOff || l.each == nil {
		l.places.leave()
		return
	}
	o.mu.Lock()
	o.samples = append(o.samples, s)
	first, full := len(o.samples) == 1, len(o.samples) > undelivered
	if full {
		o.held++
	}
	o.mu.Unlock()
	if first {
		select {
		case o.filled <- struct{}{}:
		default: // it is awake
		}
	}
	if !full {
		l.places.leave()
	}
}

// deliver tells of samples until no call is under way any more.
func (o *outbox) deliver() {
	var spare []probe.Sample
	for over := false; ; {
		if !over {
			select {
			case <-o.filled:
				time.Sleep(gap)
			case <-o.done:
				over = true
			}
		}
		o.mu.Lock()
		samples, held := o.samples, o.held
		o.samples, o.held = spare[:0], 0
		o.mu.Unlock()
		for _, s := range samples {
			o.run.each(s)
		}
		for range held {
			o.run.places.leave()
		}
		clear(samples)
		spare = samples
		if over && len(samples) == 0 {
			return
		}
	}
}

// empty waits until all places are free, at most for some ns, and reports whether they are.
func (p *places) empty(limit int64) bool {
	p.wanting.Store(true)
	defer p.wanting.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(limit))
	defer cancel()
	for p.taken.Load() > 0 {
		select {
		case <-p.freed:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
