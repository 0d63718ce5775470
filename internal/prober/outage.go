package prober

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"netemd/probe"
)

const (
	// askEvery is the time between two questions to a network that does not answer.
	askEvery = 50 * time.Millisecond
	// askFor is how long one is waited for: less than the 1 s after which its SYN would be
	// sent again.
	askFor = 900 * time.Millisecond
)

// outages watches a run's calls, and asks the network while they fail.
type outages struct {
	ask func(ctx context.Context) bool // reports whether there was an answer

	mu    sync.Mutex
	seen  probe.Outages
	tasks sync.WaitGroup
}

// ended takes a call that has ended. What it starts ends with ctx.
func (o *outages) ended(ctx context.Context, s probe.Sample) {
	if s.Warmup {
		return
	}
	o.mu.Lock()
	began := o.seen.Ended(s)
	o.mu.Unlock()
	if began && o.ask != nil {
		o.tasks.Go(func() { o.watch(ctx) })
	}
}

// watch asks until there is an answer, or the calls have one.
func (o *outages) watch(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	t := time.NewTicker(askEvery)
	defer t.Stop()
	for ctx.Err() == nil && !o.over() {
		o.tasks.Go(func() {
			c, cancel := context.WithTimeout(ctx, askFor)
			defer cancel()
			if !o.ask(c) {
				return
			}
			now := probe.Now()
			o.mu.Lock()
			defer o.mu.Unlock()
			o.seen.Answered(now)
		})
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
}

func (o *outages) over() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen.Over()
}

// result is what there was, nil if nothing; whatever was started has ended when the context
// of ended has.
func (o *outages) result() *probe.Outages {
	o.tasks.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen.Finish()
	if o.seen.Count == 0 {
		return nil
	}
	all := o.seen
	return &all
}

// asks reports whether the network is to be asked while calls fail: only where they go through
// kept connections. Calls that make a connection each ask by themselves, and what is asked
// beside them would meet the faults that are counted or drawn by connections: a proxy's toxics,
// the first SYNs. A proxy answers whatever is behind it.
func asks(r probe.Request) bool {
	if r.Layer != probe.LayerDirect {
		return false
	}
	switch r.Kind {
	case probe.KindPostgres:
		return r.Postgres.Pool > 0
	case probe.KindTCP:
		return r.TCP.Keep
	case probe.KindHTTP:
		return r.HTTP.Keep
	case probe.KindGRPC:
		return !r.GRPC.New
	}
	return false
}

// askTCP asks an address by one connection, which it cuts at once: the server has nothing
// to part from.
func askTCP(at netip.AddrPort) func(context.Context) bool {
	return func(ctx context.Context) bool {
		d := net.Dialer{KeepAlive: -1}
		d.SetMultipathTCP(false)
		c, err := d.DialContext(ctx, "tcp", at.String())
		if err != nil {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		_ = c.Close()
		return true
	}
}
