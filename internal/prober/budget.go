package prober

import (
	"context"
	"fmt"
	"time"

	"netemd/probe"
	"netemd/probe/load"
)

// silence is how long, beyond its budget, a call may last, and a child say nothing.
const silence = 15 * time.Second

// budgeted gives each call its budget, where the context that it is called with, a
// policy's, has none. A call that will not end is told of: its caller is wrong, and the
// run would wait for it for ever.
type budgeted struct {
	probe.Caller
	timeout, patience time.Duration
	stuck             func(error)
}

func (b *budgeted) Call(ctx context.Context, seq int) probe.Sample {
	until, ok := ctx.Deadline()
	if !ok {
		until = time.Now().Add(b.timeout)
		c, cancel := context.WithDeadlineCause(ctx, until, load.ErrBudget)
		defer cancel()
		ctx = c
	}
	watch := time.AfterFunc(time.Until(until)+b.patience, func() {
		b.stuck(fmt.Errorf("call %d has not ended %v after its budget", seq, b.patience))
	})
	defer watch.Stop()
	return b.Caller.Call(ctx, seq)
}
