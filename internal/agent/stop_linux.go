package agent

import (
	"context"
	"errors"
	"os"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"netemd/internal/fault"
)

// How long what happens at a stop may take: the calls in progress, clearing the faults,
// and taking the labs down.
const (
	stopTime      = 5 * time.Second
	faultStopTime = time.Minute
	labStopTime   = 90 * time.Second
)

// Serve answers until ctx ends; then it clears all faults, takes the labs down and
// removes its files. With Settings.Keep the faults are handed over to the next start
// instead, and the labs stay up for it.
func (a *Agent) Serve(ctx context.Context) error {
	served := make(chan error, len(a.listeners))
	for _, l := range a.listeners {
		go func() { served <- a.server.Serve(l) }()
		a.cfg.Log.Info("listening", "network", l.Addr().Network(), "address", l.Addr().String())
	}
	a.telemetry.Start()
	a.health.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	a.cfg.Log.Info("ready", "socket", a.cfg.Socket, "state", a.cfg.StateDir, "pid", os.Getpid())
	if a.cfg.Ready != nil {
		a.cfg.Ready()
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
	}
	return errors.Join(err, a.Close(ctx))
}

// Close undoes everything that the agent did to the machine. It goes on after an
// error and returns them all; it also works on an agent that did not start.
func (a *Agent) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	a.closing.Store(true)
	if a.health != nil {
		a.health.Shutdown()
	}
	if a.cfg.Stopping != nil {
		a.cfg.Stopping()
	}
	keep := a.ready && a.cfg.Settings.Keep
	var errs []error
	if a.leases != nil {
		errs = append(errs, a.closeLeases(ctx, keep), a.keeper.Close())
	}
	if a.server != nil {
		a.stopServer()
	}
	for _, l := range a.listeners {
		_ = l.Close() // the server has
	}
	errs = append(errs, a.telemetry.Close(ctx))
	if a.ready && keep {
		errs = append(errs, a.downAllHeld(ctx))
	}
	if a.ready && !keep {
		ctx, cancel := context.WithTimeoutCause(ctx, labStopTime, errors.New("taking the labs down took too long"))
		defer cancel()
		_, err := a.labs.Cleanup(ctx)
		errs = append(errs, err, a.definitions.forget())
	}
	if a.labs != nil {
		errs = append(errs, a.labs.Close())
	}
	for _, e := range a.engines {
		errs = append(errs, e.Close())
	}
	if len(a.listeners) > 0 { // closing it removes the socket; a kill of the server does not
		errs = append(errs, removeSocket(a.cfg.Socket))
	}
	errs = append(errs, closeJournal(a.journal), a.closeRefusals(), a.audit.Close(), removeStateDir(a.cfg, a.lock))
	return errors.Join(errs...)
}

// closeLeases clears the faults, after those that are to be kept were written down.
func (a *Agent) closeLeases(ctx context.Context, keep bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, faultStopTime, errors.New("clearing the faults took too long"))
	defer cancel()
	var kept []fault.Fault
	var keeping error
	if keep {
		kept = a.leases.Keep(ctx)
		keeping = a.journal.Keep(ctx, kept)
	}
	err := errors.Join(keeping, a.leases.Close(ctx))
	a.background.Wait()
	if words := inWords("kept", kept); len(words) > 0 {
		a.cfg.Log.Info("faults are handed over to the next start", "faults", words)
		a.recordRemoved("kept", words, keeping)
	}
	return err
}

// downAllHeld takes down those labs of a stop that keeps the others which are there for clients.
func (a *Agent) downAllHeld(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, labStopTime, errors.New("taking the labs down took too long"))
	defer cancel()
	infos, err := a.labs.List(ctx)
	errs := []error{err}
	for _, i := range infos {
		if i.Held {
			_, err := a.labs.DownHeld(ctx, i.Name, func() bool { return true })
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (a *Agent) stopServer() {
	close(a.stopping)
	done := make(chan struct{})
	go func() {
		a.server.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopTime):
		go a.server.Stop() // it waits for handlers, which end with this process at the latest
	}
}
