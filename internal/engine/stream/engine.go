package stream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"syscall"
	"time"

	"netemd/internal/fault"
)

// DefaultLimit is how long one control call may take.
const DefaultLimit = 5 * time.Second

// Config of an Engine. The zero value works, but recovers no stuck proxy.
type Config struct {
	// Limit of every control call; 0 means DefaultLimit.
	Limit time.Duration
	// Restart brings a proxy whose control is stuck back to a state without toxics.
	// The function Restart of this package does; nil means that nothing is tried.
	Restart func(ctx context.Context, apiSocket string) error
}

// Engine sets toxics on proxies. It has no state of its own, needs no privilege
// beyond access to the sockets, and is safe for concurrent use.
type Engine struct{ config Config }

// New returns an Engine.
func New(c Config) *Engine {
	if c.Limit <= 0 {
		c.Limit = DefaultLimit
	}
	return &Engine{config: c}
}

// Set makes toxics all that the proxy behind apiSocket does to connections, until
// deadline, when the proxy itself takes them away; a Down among them makes it
// refuse connections. It then reads back. No toxics at all is a Clear.
//
// After Set no connection escapes: the ones that were open are cut, unless exactly
// these toxics were in force already, in which case only the deadline moves.
//
// When an invalid toxic (*qdisc.FieldError) or a deadline in the past is refused,
// what was there before is still in force. After a StuckError the proxy has been
// restarted without toxics, or its state is unknown, as the error says. After any
// other error the proxy has been cleared, as far as that was possible.
func (e *Engine) Set(ctx context.Context, apiSocket string, toxics []fault.Toxic, deadline time.Time) error {
	if len(toxics) == 0 {
		return e.Clear(ctx, apiSocket)
	}
	for _, t := range toxics {
		if err := t.Validate(); err != nil {
			return fmt.Errorf("stream set: %w", err)
		}
	}
	if left := time.Until(deadline); left <= 0 {
		return fmt.Errorf("stream set: the deadline was %v ago", -left.Round(time.Millisecond))
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("stream set: %w", context.Cause(ctx))
	}
	err := e.replace(ctx, apiSocket, toxics, deadline)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrStuck):
		return fmt.Errorf("stream set: %w", e.recover(ctx, apiSocket, err))
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fault.ErrConflict) {
		return fmt.Errorf("stream set: %w", err) // no proxy, or nothing done: nothing to clear
	}
	// Half a fault is worse than none.
	if undo := e.Clear(context.WithoutCancel(ctx), apiSocket); undo != nil {
		return fmt.Errorf("stream set: %w; then %w", err, undo)
	}
	return fmt.Errorf("stream set: %w", err)
}

// Read returns the toxics in force, in typed units with all defaults written out,
// in the order of fault.NormalizeToxics, so that a comparison shows a drift. A proxy
// that refuses connections has a Down. Nil means none.
func (e *Engine) Read(ctx context.Context, apiSocket string) ([]fault.Toxic, error) {
	toxics, err := e.read(ctx, apiSocket)
	if err != nil {
		return nil, fmt.Errorf("stream read: %w", err)
	}
	return toxics, nil
}

// Clear takes every toxic away, lets the proxy accept connections again, and reads
// back. Connections through a proxy that had toxics are cut, so that what hangs
// ends; those through one without are left alone. A StuckError with Recovered
// means that the toxics are gone, together with the old proxy process's state.
func (e *Engine) Clear(ctx context.Context, apiSocket string) error {
	err := e.replace(ctx, apiSocket, nil, time.Time{})
	if errors.Is(err, ErrStuck) {
		err = e.recover(ctx, apiSocket, err)
	}
	if err != nil {
		return fmt.Errorf("stream clear: %w", err)
	}
	return nil
}

func (e *Engine) control(apiSocket string) control {
	return control{socket: apiSocket, limit: e.config.Limit}
}

func (e *Engine) replace(ctx context.Context, apiSocket string, toxics []fault.Toxic, deadline time.Time) error {
	o, err := newOrder(toxics, deadline)
	if err != nil {
		return err
	}
	var done outcome
	if err := e.control(apiSocket).call(ctx, "PUT", faultPath, o, &done); err != nil {
		if answered(err, http.StatusConflict) {
			return fmt.Errorf("%w: %w", fault.ErrConflict, err)
		}
		return err
	}
	if len(toxics) == 0 && done.Goroutines > maxLeaked {
		// What the cut connections left is freed only with the process. Their like
		// were cut just now, so this is the time.
		if err := Restart(ctx, apiSocket); err != nil {
			return err
		}
	}
	got, err := e.read(ctx, apiSocket)
	if err != nil {
		return err
	}
	if len(toxics) == 0 && slices.Equal(got, []fault.Toxic{{Kind: fault.Down}}) {
		return nil // by a client of the proxy's API
	}
	if want := fault.NormalizeToxics(toxics); !slices.Equal(got, want) {
		return fmt.Errorf("read back: the proxy has %+v, asked for %+v", got, want)
	}
	return nil
}

func (e *Engine) read(ctx context.Context, apiSocket string) ([]fault.Toxic, error) {
	var p wireProxy
	if err := e.control(apiSocket).call(ctx, "GET", faultPath, nil, &p); err != nil {
		return nil, err
	}
	return fromWire(ours(p, mark), p.Enabled), nil
}

// recover restarts a stuck proxy. The error is the StuckError with the outcome.
func (e *Engine) recover(ctx context.Context, apiSocket string, err error) error {
	stuck, ok := errors.AsType[*StuckError](err)
	if !ok || e.config.Restart == nil {
		return err
	}
	// The caller's own limit may be over by now; the recovery must still happen.
	limited, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), 2*e.config.Limit,
		errors.New("restarting the proxy took too long"))
	defer cancel()
	stuck.Recovery = e.config.Restart(limited, apiSocket)
	stuck.Recovered = stuck.Recovery == nil
	return stuck
}

// Restart makes the proxy's process start over, without toxics and accepting
// connections, and returns when its API answers again. The process keeps its id,
// namespace, arguments and standard input (it executes itself anew), so nobody who
// watches it takes it for dead. It works while Toxiproxy's API hangs, because it
// takes none of its locks. All connections through the proxy are cut.
func Restart(ctx context.Context, apiSocket string) error {
	c := control{socket: apiSocket, limit: DefaultLimit}
	var before, after instance
	if err := c.call(ctx, "GET", restartPath, nil, &before); err != nil {
		return err
	}
	// The answer never comes: the connection ends when the process starts over.
	if err := c.call(ctx, "POST", restartPath, nil, nil); errors.Is(err, ErrStuck) {
		return err
	}
	for {
		err := c.call(ctx, "GET", restartPath, nil, &after)
		if err == nil && after != before {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("restart of the proxy behind %s: %w", apiSocket, context.Cause(ctx)), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}
