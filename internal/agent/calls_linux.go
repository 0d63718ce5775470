package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/access"
	"netemd/internal/fault"
	"netemd/internal/wire"
)

// call is one call from its beginning to its end: who, what, and what came of it. Its
// fields are the one's who serves it.
type call struct {
	method string
	verb   access.Verb
	peer   peerInfo
	known  bool // who the peer is
	listed bool // whether the method is of the API
	// allowed says that the request may be made and has the form of one: from then on an error
	// is of what was tried.
	allowed bool
	begun   time.Time
	target  string
	faults  []string
	req     proto.Message
	// recorded says that what a stream did has been written down already.
	recorded bool
}

func newCall(ctx context.Context, method string) *call {
	c := &call{method: method, begun: time.Now()}
	c.verb, c.listed = verbOf(method)
	if c.peer, c.known = peerOf(ctx); !c.known {
		c.peer.owner = unknownOwner
	}
	return c
}

// begin refuses a request that the caller may not make, or that has what no request has.
func (a *Agent) begin(ctx context.Context, c *call, req any) error {
	err := a.mayBegin(ctx, c, req)
	c.allowed = err == nil
	return err
}

func (a *Agent) mayBegin(ctx context.Context, c *call, req any) error {
	if !c.known { // no listener lets such a one in
		return fmt.Errorf("%w: a peer without credentials", fault.ErrDenied)
	}
	m, ok := req.(proto.Message)
	if !ok || !strings.HasPrefix(c.method, api) {
		return a.foreign(c)
	}
	if !c.listed {
		return fmt.Errorf("%w: no rule can be about %s", fault.ErrDenied, c.method)
	}
	if c.req == nil {
		c.req = m
	}
	if err := checkTexts(m); err != nil {
		return err
	}
	return a.authorize(c, m)
}

// foreign lets everybody ask for the health, and for the description of the API over the
// unix socket, over TCP only where it is configured.
func (a *Agent) foreign(c *call) error {
	if !strings.HasPrefix(c.method, "/grpc.reflection.") {
		return nil
	}
	if c.peer.byTLS() && !a.cfg.Settings.TCP.Reflection {
		return fmt.Errorf("reflection is off on TCP (tcp.reflection of the agent's configuration): %w", errors.ErrUnsupported)
	}
	return a.policy.Allow(c.peer.access(), access.List, "")
}

// unary turns errors and panics into statuses, and refuses and writes down what has to be.
func (a *Agent) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (m any, err error) {
	c := newCall(ctx, info.FullMethod)
	reached(ctx)
	defer func() {
		c.note(m)
		err = a.ended(c, recover(), err)
	}()
	if err := a.begin(ctx, c, req); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

// stream does the same for streams, and ends them when the agent stops.
func (a *Agent) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	c := newCall(s.Context(), info.FullMethod)
	reached(s.Context())
	ctx, cancel := context.WithCancelCause(s.Context())
	w := &watchedStream{ServerStream: s, ctx: ctx, a: a, call: c}
	defer func() {
		w.leave()
		err = a.ended(c, recover(), err)
		cancel(nil)
	}()
	if !strings.HasPrefix(c.method, api) { // the first message may never come
		if err := a.foreign(c); err != nil {
			return err
		}
	}
	go func() {
		select {
		case <-a.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	return next(srv, w)
}

var errStopping = errors.New("the agent is stopping")

// watchedStream looks at what comes in, and takes notes of what goes out.
type watchedStream struct {
	grpc.ServerStream
	ctx   context.Context
	a     *Agent
	call  *call
	begun bool
	left  func()
}

func (s *watchedStream) Context() context.Context { return s.ctx }

func (s *watchedStream) leave() {
	if s.left != nil {
		s.left()
	}
}

// RecvMsg refuses a first message as the request that it is; later ones carry no more
// than their stream was allowed.
func (s *watchedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	if s.begun {
		if p, ok := m.(proto.Message); ok {
			return checkTexts(p)
		}
		return nil
	}
	s.begun = true
	if err := s.a.begin(s.ctx, s.call, m); err != nil {
		return err
	}
	var err error
	s.left, err = s.a.follow(s.call, m)
	return err
}

func (s *watchedStream) SendMsg(m any) error {
	s.call.note(m)
	if stands(s.call.method, m) && !s.call.recorded {
		s.call.recorded = true // a hold may last for hours: it is written down now
		s.a.record(s.call, nil)
		s.call.verb = "release"
	}
	return s.ServerStream.SendMsg(m)
}

// stands says whether a message tells that what its stream holds is there.
func stands(method string, m any) bool {
	switch r := m.(type) {
	case *netemv1.HoldResponse:
		return r.GetFault() != nil
	case *netemv1.LabProgress:
		return r.GetLab() != nil && method == netemv1.Labs_Hold_FullMethodName
	}
	return false
}

// note keeps the faults that an answer is about.
func (c *call) note(m any) {
	var fs []*netemv1.Fault
	switch r := m.(type) {
	case *netemv1.Fault:
		fs = []*netemv1.Fault{r}
	case *netemv1.ClearResponse:
		fs = r.GetCleared()
	case *netemv1.ApplyAllResponse:
		fs = r.GetFaults()
	case *netemv1.HoldResponse:
		fs = []*netemv1.Fault{r.GetFault()}
	}
	known := map[string]bool{"": true}
	for _, id := range c.faults {
		known[id] = true
	}
	for _, f := range fs {
		if id := f.GetId(); !known[id] {
			known[id] = true
			c.faults = append(c.faults, id)
		}
	}
}

// ended writes a call's end down and makes a status of its error. A panic ends its
// call only: the faults of the others must still end in time.
func (a *Agent) ended(c *call, panicked any, err error) error {
	if panicked != nil {
		a.cfg.Log.Error("call panicked", "method", c.method, "by", c.peer.owner, "panic", panicked, "stack", string(debug.Stack()))
		err = fmt.Errorf("the agent failed at %s: %v", c.method, panicked)
	}
	st := statusOf(err)
	switch {
	case !c.allowed && panicked == nil && status.Code(st) == codes.Canceled:
		return st // who asked went away before the request was here
	case !c.allowed:
		a.refuseCall(c, err)
		return st
	case err != nil:
		a.cfg.Log.Log(context.Background(), failureLevel(err), "call failed", "method", c.method, "by", c.peer.owner, "err", err)
	case changes[c.verb]:
		a.cfg.Log.Info("call", "method", c.method, "by", c.peer.owner)
	default:
		a.cfg.Log.Debug("call", "method", c.method, "by", c.peer.owner)
	}
	if changes[c.verb] || c.recorded {
		a.record(c, err)
	}
	return st
}

// failureLevel is how a call's error is logged: who asked went away, as every holder does
// in the end, or came second, or the agent stops: nothing that the agent's operator has to look at.
func failureLevel(err error) slog.Level {
	if status.Code(statusOf(err)) == codes.Canceled || errors.Is(err, fault.ErrConflict) || errors.Is(err, errStopping) || errors.Is(err, errLeft) {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// statusOf makes a status of an error; of gRPC's own, as of a request that is too large, what
// it is.
func statusOf(err error) error {
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return wire.Status(err)
}

// codeOf is gRPC's name of what became of a call.
func codeOf(err error) string { return status.Code(statusOf(err)).String() }
