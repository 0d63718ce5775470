package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/internal/wire"
)

// labReleaseTime bounds the end of a hold on a lab, which takes the lab down.
const labReleaseTime = 2 * time.Minute

type labHoldStream = grpc.BidiStreamingClient[netemv1.LabUpRequest, netemv1.LabProgress]

// LabHold is a lab that this client holds: one that it made ends with the process, however that
// ends. It is safe for concurrent use.
type LabHold struct {
	c      *Client
	stream labHoldStream
	stop   context.CancelCauseFunc // ends the stream
	done   chan struct{}           // closed when it is over
	info   lab.Info
	lost   func(error)

	mu sync.Mutex
	// bound says that the agent's silence ends the stream: while the lab is made, and taken
	// down. silent is why the agent is silent; nil where it is not.
	bound     bool
	silent    error
	releasing bool
	err       error
}

// ServiceEnded is of a service of a lab that nobody asked to end.
type ServiceEnded struct {
	Lab     string
	Service lab.ServiceInfo
}

func (e *ServiceEnded) Error() string {
	text := fmt.Sprintf("service %s of lab %s ended by itself: %s", e.Service.Name, e.Lab, e.Service.Status)
	if e.Service.Log != "" {
		text += " (its log: " + e.Service.Log + ")"
	}
	return text
}

// HoldLab makes a lab that is there as long as it is held, and tells each step. One that is up is
// taken as it is, whatever its definition, and stays; the settings of its servers that change
// while it is held are put back. When ctx ends before the lab is up, it returns after the agent
// has undone what it made. lost is told, perhaps several times, what makes the lab something else
// than what was held: a *ServiceEnded, or why it is not held any more.
func (c *Client) HoldLab(ctx context.Context, r labfile.Request, progress func(step string), lost func(error)) (*LabHold, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	h := &LabHold{c: c, done: make(chan struct{}), lost: lost, bound: true}
	life, stop := context.WithCancelCause(bearing(context.WithoutCancel(ctx), h.silence))
	h.stop = stop
	fail := func(err error) (*LabHold, error) {
		if cause := context.Cause(life); cause != nil {
			err = cause
		}
		stop(nil)
		return nil, c.err(err)
	}
	var err error
	if h.stream, err = c.labs.Hold(life); err != nil {
		return fail(err)
	}
	if err := h.stream.Send(wire.LabUpRequest(r)); err != nil {
		_, err = h.stream.Recv() // which has the error
		return fail(err)
	}
	breakOff := context.AfterFunc(ctx, func() {
		_ = h.stream.CloseSend()
		time.AfterFunc(labReleaseTime, func() { stop(context.Cause(ctx)) })
	})
	for {
		m, err := h.stream.Recv()
		if err != nil {
			if ctx.Err() != nil && context.Cause(life) == nil {
				stop(nil)
				return nil, context.Cause(ctx) // it is undone
			}
			return fail(err)
		}
		if m.GetStep() != "" && progress != nil {
			progress(m.GetStep())
		}
		if m.GetLab() != nil {
			h.info = wire.LabOf(m.GetLab())
			break
		}
	}
	h.mu.Lock()
	h.bound = false
	h.mu.Unlock()
	go h.follow()
	if !breakOff() {
		return nil, errors.Join(context.Cause(ctx), h.Release(ctx))
	}
	return h, nil
}

// Info is the lab as it was when it was up.
func (h *LabHold) Info() lab.Info { return h.info }

// follow receives until the hold is over.
func (h *LabHold) follow() {
	defer close(h.done)
	defer h.stop(nil)
	err := each(h.c, h.stream.Recv, func(m *netemv1.LabProgress) error {
		if m.GetEnded() != nil {
			h.lost(&ServiceEnded{h.info.Name, wire.LabServiceOf(m.GetEnded())})
		}
		return nil
	})
	h.mu.Lock()
	h.err = err
	asked := h.releasing
	h.mu.Unlock()
	if asked {
		return
	}
	if err == nil {
		err = errNoWord
	}
	h.lost(fmt.Errorf("lab %s is not held any more: %w", h.info.Name, err))
}

// silence is told by the pulse, which must not be blocked.
func (h *LabHold) silence(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.silent = err
	if err != nil && h.bound {
		h.stop(err)
	}
}

// Release lets go of the lab, also after ctx did: one that was made by this hold, and that
// nobody else holds, is down when it returns. The error is why it was not held to this moment,
// or why it could not be taken down; the agent does so when it finds the client gone. A second
// Release is harmless.
func (h *LabHold) Release(ctx context.Context) error {
	whole, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), labReleaseTime, fmt.Errorf("lab %s: the agent did not take it down within %v", h.info.Name, labReleaseTime))
	defer cancel()
	h.mu.Lock()
	h.releasing, h.bound = true, true
	if h.silent != nil {
		h.stop(h.silent)
	}
	h.mu.Unlock()
	_ = h.stream.CloseSend() // an error is Recv's, too
	select {
	case <-h.done:
	case <-whole.Done():
		h.stop(context.Cause(whole))
		<-h.done
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}
