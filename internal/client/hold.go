package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"time"

	"google.golang.org/grpc"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/wire"
)

// What Hold tells beside the kinds of fault.Event.
const (
	// Waiting: a conflicting fault stands; the words say which.
	Waiting = wire.Waiting
	// Silent and Answers: the agent does not answer, and does again. The fault is held on.
	Silent  = "silent"
	Answers = "answers"
	// Broken and Resumed: the connection broke, and the fault is held over another one.
	Broken  = "broken"
	Resumed = "resumed"
	// Unrenewed: the agent could not renew the fault; the words say why.
	Unrenewed = "unrenewed"
	// Gone: the fault is no longer held; the words say why.
	Gone = "gone"
)

// holdTime bounds what must not be cut short by an interrupt: the making of a fault, and
// its end. A proxy that hangs is given up by the agent after about 20 s.
const holdTime = 30 * time.Second

// Holding is a fault that the agent keeps only as long as this client holds it: it ends
// with the process, however that ends, and by its time to live when it is not renewed.
// It is safe for concurrent use.
type Holding struct {
	c    *Client
	stop context.CancelFunc // ends all streams
	done chan struct{}      // closed when it is over
	// telling is held while notify runs.
	telling sync.Mutex
	notify  func(e fault.Event, words string)

	mu sync.Mutex
	// making cancels the making of the fault, nil when that is done.
	making context.CancelCauseFunc
	// stream is nil while the connection is broken.
	stream    holdStream
	fault     fault.Fault
	token     uint64
	ended     bool // the agent said that the fault ended
	releasing bool
	err       error
}

type holdStream = grpc.BidiStreamingClient[netemv1.HoldRequest, netemv1.HoldResponse]

// Hold makes a fault and holds it. notify, which may be nil, is told what happens to it,
// in one goroutine at a time, and must not block for long. When ctx ends before the fault
// is made, none is left, and the error is ctx's cause; later its end means nothing.
func (c *Client) Hold(ctx context.Context, s fault.Spec, notify func(e fault.Event, words string)) (*Holding, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if notify == nil {
		notify = func(fault.Event, string) {}
	}
	h := &Holding{c: c, done: make(chan struct{}), notify: notify}
	life, stop := context.WithCancel(bearing(context.WithoutCancel(ctx), h.silence))
	h.stop = stop
	stream, held, err := h.make(ctx, life, s)
	if err != nil {
		stop()
		return nil, err
	}
	h.mu.Lock()
	h.making, h.stream, h.fault, h.token = nil, stream, held.Fault, held.Token
	h.mu.Unlock()
	go h.follow(life)
	if ctx.Err() != nil {
		_, err := h.Release(ctx)
		return nil, errors.Join(context.Cause(ctx), err)
	}
	return h, nil
}

// make opens the first stream. ctx's end cuts waiting short, but not the making.
func (h *Holding) make(ctx, life context.Context, s fault.Spec) (holdStream, wire.Held, error) {
	opening, cancel := context.WithCancelCause(life)
	h.mu.Lock()
	h.making = cancel
	h.mu.Unlock()
	limit := time.AfterFunc(holdTime+s.Wait, func() {
		cancel(fmt.Errorf("the agent did not finish the fault within %v: %w", holdTime+s.Wait, context.DeadlineExceeded))
	})
	defer limit.Stop()
	waits := make(chan struct{})
	var once sync.Once
	over := make(chan struct{})
	defer close(over)
	go func() {
		select {
		case <-ctx.Done():
		case <-over:
			return
		}
		select {
		case <-waits:
			cancel(context.Cause(ctx))
		case <-over:
		}
	}()
	stream, held, err := h.open(opening, wire.HoldApply(s), func() { once.Do(func() { close(waits) }) })
	if err != nil {
		if cause := context.Cause(opening); cause != nil {
			err = cause
		}
		cancel(nil)
	}
	return stream, held, err
}

// open begins a stream and returns the agent's first answer that is not about waiting.
func (h *Holding) open(ctx context.Context, first *netemv1.HoldRequest, waits func()) (holdStream, wire.Held, error) {
	stream, err := h.c.faults.Hold(ctx)
	if err != nil {
		return nil, wire.Held{}, h.c.err(err)
	}
	if err := stream.Send(first); err != nil && !errors.Is(err, io.EOF) { // io.EOF: Recv has the error
		return nil, wire.Held{}, h.c.err(err)
	}
	for {
		held, err := h.receive(stream)
		if err != nil {
			return nil, held, err
		}
		if held.Kind != Waiting {
			return stream, held, nil
		}
		h.tell(Waiting, held.Fault, held.Detail)
		waits()
	}
}

// errNoWord is of an agent that ended a stream without saying what became of the fault.
var errNoWord = errors.New("the agent ended the hold without a word")

func (h *Holding) receive(stream holdStream) (wire.Held, error) {
	m, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return wire.Held{}, errNoWord
	}
	if err != nil {
		return wire.Held{}, h.c.err(err)
	}
	return wire.HeldOf(m)
}

// follow receives until the fault has ended, or is no longer held.
func (h *Holding) follow(life context.Context) {
	defer close(h.done)
	defer h.stop()
	for {
		held, err := h.receive(h.stream)
		if err == nil {
			if h.note(held) {
				return
			}
			continue
		}
		if errors.Is(err, ErrUnreachable) && life.Err() == nil && h.c.at.overTCP() {
			if err = h.resume(life, err); err == nil {
				continue
			}
		}
		h.end(err)
		return
	}
}

// note takes over what the agent said, and reports whether that was the end.
func (h *Holding) note(held wire.Held) (over bool) {
	h.mu.Lock()
	if held.Fault.ID != "" {
		h.fault = held.Fault
	}
	if held.Token != 0 {
		h.token = held.Token
	}
	switch {
	case h.fault.State == fault.Cleared, h.fault.State == fault.Expired, held.Kind == "cleared", held.Kind == "expired":
		over = true
		h.ended = true
	}
	asked := h.releasing
	f := h.fault
	h.mu.Unlock()
	if held.Kind == "" && held.Detail != "" {
		held.Kind = Unrenewed
	}
	if held.Kind != "" && held.Kind != "applied" && held.Kind != "renewed" && (!over || !asked) {
		h.tell(held.Kind, f, held.Detail)
	}
	return over
}

// end notes why the fault is no longer held.
func (h *Holding) end(err error) {
	h.mu.Lock()
	h.stream = nil
	if h.releasing && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoWord)) {
		err, h.ended = nil, true // it was released, and only the answer got lost
	}
	h.err = err
	f, asked := h.fault, h.releasing || errors.Is(err, context.Canceled)
	h.mu.Unlock()
	if err != nil && !asked {
		h.tell(Gone, f, err.Error())
	}
}

// resume takes the fault over by a stream on a new connection, within the time that the
// agent leaves a client whose connection broke.
func (h *Holding) resume(life context.Context, broke error) error {
	h.mu.Lock()
	h.stream = nil
	f := h.fault
	h.mu.Unlock()
	h.tell(Broken, f, broke.Error())
	grace := wire.HoldGrace
	if ttl := f.Spec.TTL; ttl > 0 {
		grace = min(grace, ttl)
	}
	opening, cancel := context.WithCancel(life)
	limit := time.AfterFunc(grace, cancel)
	for {
		stream, held, err := h.open(opening, wire.HoldResume(f.ID, h.token), func() {})
		if err == nil && !limit.Stop() {
			err = context.Canceled
		}
		if err == nil {
			h.resumed(stream, held)
			return nil
		}
		if opening.Err() == nil && errors.Is(err, ErrUnreachable) {
			select {
			case <-time.After(wire.ReconnectFirst):
				continue
			case <-opening.Done():
			}
		}
		timedOut := opening.Err() != nil
		cancel()
		if timedOut {
			return fmt.Errorf("%w; it did not come back within %v", broke, grace)
		}
		return fmt.Errorf("resume %s: %w", f.ID, err)
	}
}

func (h *Holding) resumed(stream holdStream, held wire.Held) {
	h.mu.Lock()
	h.stream = stream
	h.mu.Unlock()
	held.Kind = Resumed
	h.note(held)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.releasing { // asked for while there was no connection
		_ = stream.Send(wire.HoldRelease()) // an error is Recv's, too
	}
}

func (h *Holding) tell(kind string, f fault.Fault, words string) {
	h.telling.Lock()
	defer h.telling.Unlock()
	h.notify(fault.Event{Time: time.Now(), Kind: kind, Fault: f}, words)
}

// silence is told by the pulse, which must not be blocked. It ends the making of a fault:
// one that has no holder ends with the stream when the agent goes on.
func (h *Holding) silence(err error) {
	h.mu.Lock()
	making := h.making
	h.mu.Unlock()
	if making != nil {
		if err != nil {
			making(err)
		}
		return
	}
	go func() {
		if err == nil {
			h.tell(Answers, h.Fault(), "")
			return
		}
		h.tell(Silent, h.Fault(), err.Error())
	}()
}

// Fault is what the agent said last.
func (h *Holding) Fault() fault.Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fault
}

// Renew asks for the fault's time to live again, from now. Its error is why the fault is
// no longer held; while a connection is being made anew there is none.
func (h *Holding) Renew() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stream != nil && !h.ended {
		_ = h.stream.Send(wire.HoldRenew()) // an error is Recv's, too
	}
	return h.err
}

// Release looks at the fault a last time and ends it, also after ctx did. The fault that
// it returns has the last counters, and the state that the look found, or in which the
// fault had ended before. The error is why it was not held to this moment, or why it
// could not be looked at; what was left of it is cleared all the same. A second Release
// is harmless.
func (h *Holding) Release(ctx context.Context) (fault.Fault, error) {
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), holdTime)
	defer cancel()
	select {
	case <-h.done:
		return h.over(whole)
	default:
	}
	id := h.Fault().ID
	look, lookErr := h.c.Get(whole, id)
	if lookErr != nil {
		lookErr = fmt.Errorf("last look at %s: %w", id, lookErr)
	}
	if errors.Is(lookErr, ErrUnreachable) && !h.c.at.overTCP() {
		h.stop() // it ends with the stream when the agent goes on, or has gone with it
		<-h.done
		return h.last(look), lookErr
	}
	h.mu.Lock()
	over := h.ended || h.err != nil
	if !over {
		h.releasing = true
		if h.stream != nil {
			_ = h.stream.Send(wire.HoldRelease()) // an error is Recv's, too
		}
	}
	h.mu.Unlock()
	if over {
		<-h.done
		return h.over(whole)
	}
	select {
	case <-h.done:
	case <-whole.Done():
		h.stop() // which ends the fault, too
		<-h.done
		return h.last(look), errors.Join(lookErr, fmt.Errorf("release %s: the agent did not end it within %v", id, holdTime))
	}
	h.mu.Lock()
	err := h.err
	h.mu.Unlock()
	return h.last(look), errors.Join(lookErr, err)
}

// last is the fault as it was released, in the state that the look found before.
func (h *Holding) last(look fault.Fault) fault.Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.fault
	if look.ID == "" {
		return f
	}
	f.State = look.State
	if f.Counters.Seen < look.Counters.Seen {
		f.Counters = look.Counters
	}
	if f.Total.Seen < look.Total.Seen {
		f.Total = look.Total
	}
	if f.Reason == "" {
		f.Reason = look.Reason
	}
	return f
}

// over is what Release returns for a fault that had ended before. One whose stream broke
// may still stand, as when a new agent has restored it, and is cleared; not one that is
// another client's now.
func (h *Holding) over(ctx context.Context) (fault.Fault, error) {
	h.mu.Lock()
	f, err, ended := h.fault, h.err, h.ended
	h.mu.Unlock()
	if err != nil && !ended && f.State == fault.Active {
		f.State = fault.Lost
	}
	if err == nil || ended || errors.Is(err, fault.ErrConflict) {
		return f, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	_, clearErr := h.c.Clear(ctx, fault.Selector{ID: f.ID})
	if clearErr != nil && !errors.Is(clearErr, fs.ErrNotExist) && !errors.Is(clearErr, ErrUnreachable) {
		err = errors.Join(err, fmt.Errorf("clear %s: %w", f.ID, clearErr))
	}
	return f, err
}
