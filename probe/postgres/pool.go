package postgres

import (
	"context"
	"errors"
	"sync"

	"netemd/probe"
)

var errClosed = errors.New("the probe is closed")

// pool has the free connections, and a place for each that may be in use.
type pool struct {
	places chan struct{}
	mu     sync.Mutex
	free   []*session
	closed bool
}

func (p *pool) open(places int) { p.places = make(chan struct{}, places) }

// take gives a free connection, or one that is still to be made.
func (p *Probe) take(ctx context.Context, phases *probe.Phases) (*session, error) {
	if p.err != nil {
		return nil, p.err
	}
	fresh := &session{socket: probe.NewSocket()}
	if p.Pool > 0 {
		phases.Begin(probe.PhasePool)
		select {
		case p.pool.places <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		phases.EndAt(probe.Now())
	}
	p.pool.mu.Lock()
	defer p.pool.mu.Unlock()
	if p.pool.closed {
		p.leave()
		return nil, errClosed
	}
	if n := len(p.pool.free); n > 0 {
		c := p.pool.free[n-1]
		p.pool.free = p.pool.free[:n-1]
		return c, nil
	}
	return fresh, nil
}

func (p *Probe) leave() {
	if p.Pool > 0 {
		<-p.pool.places
	}
}

// give keeps a connection that is well, also after the server's own refusal, and parts
// from any other: not before its place is free, since that may take a while.
func (p *Probe) give(c *session, err error) {
	well := err == nil || probe.Classify(err) == probe.Server
	p.pool.mu.Lock()
	keep := well && p.Pool > 0 && !p.pool.closed && c.pg != nil && !c.pg.IsClosed() && c.pg.TxStatus() == 'I'
	if keep {
		p.pool.free = append(p.pool.free, c)
	}
	p.pool.mu.Unlock()
	p.leave()
	if !keep {
		c.part()
	}
}

// Close parts from the kept connections. Calls after it fail.
func (p *Probe) Close() error {
	p.pool.mu.Lock()
	free := p.pool.free
	p.pool.free, p.pool.closed = nil, true
	p.pool.mu.Unlock()
	var parting sync.WaitGroup
	for _, c := range free {
		parting.Go(c.part)
	}
	parting.Wait()
	return nil
}
