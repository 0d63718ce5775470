package udp

import (
	"context"
	"fmt"
	"os"

	"netemd/probe"
)

// question is a packet that has no answer yet, of Call or of Start.
type question struct {
	number uint32
	answer chan result // of Call

	// of Start
	probe  *Probe
	until  int64
	limit  probe.Deadline
	sample probe.Sample
	done   func(probe.Sample)
}

// end gives the answer to who asked. The caller holds the probe's mu.
func (q *question) end(r result) {
	if q.answer != nil {
		q.answer <- r
		return
	}
	if q.probe.limits.Remove(&q.limit) {
		q.finish(q.probe.answered(&q.sample, r))
	}
}

func (q *question) finish(err error) {
	conclude(&q.sample, err)
	q.done(q.sample)
}

// expired ends the wait for an answer.
func (q *question) expired() {
	p := q.probe
	p.mu.Lock()
	delete(p.pending, q.number)
	p.mu.Unlock()
	why := os.ErrDeadlineExceeded
	if p.cutting.Load() {
		why = context.Canceled
	}
	q.finish(fmt.Errorf("%w: %w", errLost, why))
}

// Start sends one packet; see probe.Starter.
func (p *Probe) Start(s probe.Sample, until int64, done func(probe.Sample)) {
	q := &question{probe: p, until: until, sample: s, done: done}
	q.sample.Remote, q.sample.StartNS = p.Address, probe.Now()
	q.limit.Expire = q.expired
	if _, err := p.send(&q.sample, q); err != nil {
		q.finish(err)
	}
	if p.cutting.Load() { // it may have come between
		p.limits.Expire()
	}
}

// CutOff ends the calls that Start began.
func (p *Probe) CutOff() {
	p.cutting.Store(true)
	p.limits.Expire()
}
