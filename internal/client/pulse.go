package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"netemd/internal/fault"
)

// How the silence of an agent is noticed while calls wait for it. It is counted in beats
// of the client's own, so that a machine that stood still is not taken for it.
const (
	beatEvery = 250 * time.Millisecond
	// beatsMissed beats without an answer are silence: 1.5 s.
	beatsMissed = 6
	// beatsBusy is the same for an agent that works, or waits for the CPU: 10 s.
	beatsBusy = 40
)

// pulse watches whether the agent at a unix socket still answers, while calls are in
// progress: it may have been stopped in the middle of one, and gRPC's keepalive would
// not tell before 15 s. Over TCP only that is used: seconds of silence can be a path
// that loses packets, which is what this product makes.
type pulse struct {
	socket string
	health healthv1.HealthClient
	// peer is the process at the other end, 0 when that is not known.
	peer atomic.Int64
	stop context.CancelFunc
	gone sync.WaitGroup
	// wake begins the beats.
	wake chan struct{}

	mu    sync.Mutex
	calls map[*call]struct{}
}

// call is one that is in progress. silence is told once that the agent does not answer,
// and then that it does again.
type call struct{ silence func(error) }

func newPulse(socket string) *pulse {
	return &pulse{socket: socket, calls: map[*call]struct{}{}, wake: make(chan struct{}, 1)}
}

func (p *pulse) begin(conn *grpc.ClientConn) {
	p.health = healthv1.NewHealthClient(conn)
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.gone.Go(func() { p.run(ctx) })
}

func (p *pulse) close() {
	p.stop()
	p.gone.Wait()
}

// run beats while there are calls.
func (p *pulse) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			p.beats(ctx)
		}
	}
}

func (p *pulse) beats(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	ctx, cancel := context.WithCancel(ctx)
	var asked chan struct{} // closed by the answer
	missed, silent := 0, false
	var did uint64 // by the agent's process at the last beat
	defer func() {
		cancel()
		if asked != nil {
			<-asked
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if p.idle() {
			return
		}
		if asked == nil {
			asked, missed = p.ask(ctx), 0
			continue
		}
		select {
		case <-asked:
			asked = nil
			if silent {
				silent = false
				p.tell(nil)
			}
			continue
		default:
		}
		if missed++; silent || missed < beatsMissed-1 {
			continue
		}
		pid, before := int(p.peer.Load()), did
		did = activity(pid)
		if missed < beatsMissed || missed < beatsBusy && (did != before || busy(pid)) {
			continue
		}
		silent = true
		p.tell(p.silence(time.Duration(missed) * beatEvery))
	}
}

// ask sends what every agent answers at once. Any answer will do, and a connection that
// broke is for the calls to notice.
func (p *pulse) ask(ctx context.Context) chan struct{} {
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		_, _ = p.health.Check(ctx, &healthv1.HealthCheckRequest{})
	}()
	return answered
}

func (p *pulse) silence(since time.Duration) error {
	err := fmt.Errorf("%w: %s has not answered for %v", ErrUnreachable, p.socket, since)
	hint := "it may be hung: 'ps -o pid,stat,cmd -C netemd'"
	if pid := int(p.peer.Load()); stopped(pid) {
		err = fmt.Errorf("%w: its process, %d, is stopped", err, pid)
		hint = fmt.Sprintf("'kill -CONT %d' lets it go on", pid)
	}
	return fault.WithHint(err, hint+"; what was asked of it may still happen then, so look with 'netemctl list'")
}

func (p *pulse) idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.calls) == 0
}

func (p *pulse) tell(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.calls {
		c.silence(err)
	}
}

// silenceKey is of a context whose call goes on when the agent is silent, and is told.
type silenceKey struct{}

// bearing makes a context whose call is not ended by silence; told must not block.
func bearing(ctx context.Context, told func(error)) context.Context {
	return context.WithValue(ctx, silenceKey{}, told)
}

// watch makes a context for a call that silence ends, with its error as the cause. done
// must be called, and may be several times.
func (p *pulse) watch(ctx context.Context) (watched context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{silence: func(err error) {
		if err != nil {
			cancel(err)
		}
	}}
	if told, ok := ctx.Value(silenceKey{}).(func(error)); ok {
		c.silence = told
	}
	p.mu.Lock()
	p.calls[c] = struct{}{}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return ctx, func() {
		p.mu.Lock()
		delete(p.calls, c)
		p.mu.Unlock()
		cancel(nil)
	}
}

// ended is err, or why ctx was ended by silence.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, ErrUnreachable) {
		return cause
	}
	return err
}

func (p *pulse) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if method == healthv1.Health_Check_FullMethodName {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	ctx, done := p.watch(ctx)
	defer done()
	return ended(ctx, invoke(ctx, method, req, reply, cc, opts...))
}

func (p *pulse) streaming(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	ctx, done := p.watch(ctx)
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		err = ended(ctx, err)
		done()
		return nil, err
	}
	context.AfterFunc(ctx, done) // one that nobody reads to its end
	return &watchedStream{s, done}, nil
}

// watchedStream is a stream that silence ends.
type watchedStream struct {
	grpc.ClientStream
	done func()
}

func (s *watchedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err != nil {
		err = ended(s.Context(), err)
		s.done()
	}
	return err
}
