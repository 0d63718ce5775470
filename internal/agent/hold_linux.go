package agent

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/lease"
	"netemd/internal/wire"
	"netemd/qdisc"
)

type holdStream = grpc.BidiStreamingServer[netemv1.HoldRequest, netemv1.HoldResponse]

// Hold keeps a fault as long as its stream: whatever ends that without a release ends the
// fault. Over the unix socket it does at once, since only the client's end breaks one; over
// TCP a broken connection has a grace in which the client may come back.
func (s faultsServer) Hold(stream holdStream) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return noFirst()
	}
	if err != nil {
		return err
	}
	hold, kind, err := s.beginHold(stream, first)
	if err != nil {
		return err
	}
	grace := time.Duration(0)
	if peer, ok := peerOf(stream.Context()); ok && peer.byTLS() {
		grace = min(wire.HoldGrace, hold.Fault().Spec.TTL)
	}
	defer func() { hold.Drop(grace) }() // nothing where it was released
	if err := tell(stream, hold, hold.Fault(), kind, ""); err != nil {
		return err
	}
	err = s.serveHold(stream, hold)
	if errors.Is(err, errLeft) {
		grace, err = 0, nil
	}
	return err
}

func noFirst() error {
	return &qdisc.FieldError{Field: "hold", Want: "apply or resume as the first message"}
}

// beginHold does what the first message asks for, and says in an event's word what that
// was.
func (s faultsServer) beginHold(stream holdStream, first *netemv1.HoldRequest) (*lease.Hold, string, error) {
	ctx := stream.Context()
	switch {
	case first.GetResume() != nil:
		h, err := s.a.leases.Resume(ctx, first.GetResume().GetId(), first.GetResume().GetToken(), clearingOwner(ctx))
		return h, "resumed", err
	case first.GetApply() != nil:
		spec, err := s.spec(ctx, first.GetApply())
		if err != nil {
			return nil, "", err
		}
		h, err := s.a.leases.Hold(ctx, spec, func(conflict error) {
			// A client that is gone ends the context, and with it the wait.
			_ = stream.Send(wire.HoldResponse(wire.Held{Kind: wire.Waiting, Detail: conflict.Error()}))
		})
		return h, "applied", err
	}
	return nil, "", noFirst()
}

// errLeft is of a client that said no more without a release.
var errLeft = errors.New("the client left")

// serveHold answers until the fault has ended, another client has it, or this one is gone.
func (s faultsServer) serveHold(stream holdStream, hold *lease.Hold) error {
	ctx := stream.Context()
	requests, gone := make(chan *netemv1.HoldRequest), make(chan error, 1)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				gone <- err
				return
			}
			select {
			case requests <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case e, ok := <-hold.Events():
			if !ok {
				return hold.Err()
			}
			detail := ""
			if e.Kind == "cleared" && s.a.closing.Load() {
				detail = errStopping.Error()
			}
			if err := tell(stream, hold, e.Fault, e.Kind, detail); err != nil {
				return err
			}
		case m := <-requests:
			over, err := answerHold(ctx, stream, hold, m)
			if over || err != nil {
				return err
			}
		case err := <-gone:
			if errors.Is(err, io.EOF) {
				return errLeft
			}
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// answerHold does what a later message asks for. A renewal that fails is told and does not
// end the hold: how the fault stands is in its state.
func answerHold(ctx context.Context, stream holdStream, hold *lease.Hold, m *netemv1.HoldRequest) (over bool, err error) {
	switch {
	case m.GetRenew() != nil:
		f, err := hold.Renew(ctx)
		switch {
		case err == nil:
			return false, tell(stream, hold, f, "renewed", "")
		case errors.Is(err, lease.ErrUnknownFault), errors.Is(err, fault.ErrConflict):
			return false, nil // it has ended or is another's: the events say how
		}
		return false, tell(stream, hold, hold.Fault(), "", err.Error())
	case m.GetRelease() != nil:
		f, err := hold.Release(context.WithoutCancel(ctx))
		if err != nil {
			return true, err
		}
		kind := "cleared"
		if f.State == fault.Expired {
			kind = "expired"
		}
		return true, tell(stream, hold, f, kind, "")
	}
	return true, &qdisc.FieldError{Field: "hold", Want: "renew or release after the first message"}
}

func tell(stream holdStream, hold *lease.Hold, f fault.Fault, kind, detail string) error {
	return stream.Send(wire.HoldResponse(wire.Held{Fault: f, Token: hold.Token(), Kind: kind, Detail: detail}))
}
