package main

import (
	"context"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that ends at the first SIGINT, SIGTERM or SIGHUP. A second
// SIGINT or SIGTERM ends the process at once. A SIGHUP does not: who closes a terminal sends
// two without meaning it, one from the shell and one from the kernel, and what is to be
// cleared would stay.
func untilSignal(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, func() {
		signal.Ignore(syscall.SIGHUP) // before the others get back what they did, so that none slips through
		stop()
	})
	return ctx, stop
}
