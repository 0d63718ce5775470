package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"netemd/internal/client"
	"netemd/internal/lab"
)

// TestBrokeOff: what was lost is said once, and not what follows from it.
func TestBrokeOff(t *testing.T) {
	follows := errors.New("case all: the connection broke")
	ended := &client.ServiceEnded{Lab: "echo", Service: lab.ServiceInfo{Name: "web", Status: "exit status 2", Log: "/l/web.log"}}
	gone := fmt.Errorf("%w: EOF", client.ErrUnreachable)
	notHeld := fmt.Errorf("lab echo is not held any more: %w", gone)
	stuck := errors.New("lab down: echo: stuck")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(interrupted{syscall.SIGTERM})
	for name, c := range map[string]struct {
		ctx                 context.Context
		step                string
		err, lost, released error
		want                string
	}{
		"nothing":         {},
		"its own":         {err: follows, step: "s", want: "case all: the connection broke"},
		"not down":        {released: stuck, want: "lab down: echo: stuck"},
		"service":         {err: follows, lost: ended, step: "all: control", want: "all: control: service web of lab echo ended by itself: exit status 2 (its log: /l/web.log)"},
		"before any step": {err: follows, lost: ended, want: "service web of lab echo ended by itself: exit status 2 (its log: /l/web.log)"},
		"both":            {err: follows, lost: ended, released: stuck, step: "s", want: "s: service web of lab echo ended by itself: exit status 2 (its log: /l/web.log)\nlab down: echo: stuck"},
		"agent":           {err: follows, lost: notHeld, released: gone, step: "s", want: "s: lab echo is not held any more: agent unreachable: EOF; what the agent made"},
		"agent, not told": {err: follows, released: gone, step: "s", want: "s: agent unreachable: EOF; what the agent made"},
		"agent, no lab":   {err: gone, step: "s", want: "agent unreachable: EOF; what the agent made"},
		"interrupted":     {ctx: over, err: follows, lost: context.Cause(over), step: "s", want: "case all: the connection broke"},
	} {
		if c.ctx == nil {
			c.ctx = t.Context()
		}
		err := brokeOff(c.ctx, c.step, c.err, c.lost, c.released)
		if err == nil {
			if c.want != "" {
				t.Errorf("%s: no error, want %q", name, c.want)
			}
			continue
		}
		if got := reason(err); c.want == "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestInterruptCode: as shells have it.
func TestInterruptCode(t *testing.T) {
	for signal, want := range map[syscall.Signal]int{syscall.SIGINT: exitInterrupted, syscall.SIGTERM: 143, syscall.SIGHUP: 129} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(interrupted{signal})
		if got := exitCode(ctx, context.Cause(ctx)); got != want {
			t.Errorf("%v: exit code %d, want %d", signal, got, want)
		}
	}
}
