package agent

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// unreached tells the calls that fail before any code of ours sees them, such as a request
// that is too large, of which gRPC tells the client alone.
type unreached struct{ refuse func(*call, error) }

type reachedKey struct{}

// reachedCall is put into each call's context.
type reachedCall struct {
	method string
	seen   atomic.Bool
}

// reached notes that a call has come to our code.
func reached(ctx context.Context) {
	if r, ok := ctx.Value(reachedKey{}).(*reachedCall); ok {
		r.seen.Store(true)
	}
}

func (u unreached) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, reachedKey{}, &reachedCall{method: info.FullMethodName})
}

func (u unreached) HandleRPC(ctx context.Context, s stats.RPCStats) {
	end, ok := s.(*stats.End)
	if !ok || end.Error == nil {
		return
	}
	if r, ok := ctx.Value(reachedKey{}).(*reachedCall); ok && !r.seen.Load() {
		u.refuse(newCall(ctx, r.method), end.Error)
	}
}

func (unreached) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (unreached) HandleConn(context.Context, stats.ConnStats) {}
