package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/engine/stream"
	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/target"
	_ "netemd/internal/testbed" // the children that are a lab's http-echo and grpc-echo
)

// streamEngine finds the control socket of a target's proxy and hands it to the
// stream engine.
type streamEngine struct {
	labs    *lab.Manager
	proxies *stream.Engine
	remote  *stream.Remote // of the Toxiproxies of others
}

func newStreamEngine(labs *lab.Manager, remote *stream.Remote) streamEngine {
	return streamEngine{labs: labs, proxies: stream.New(stream.Config{Restart: stream.Restart}), remote: remote}
}

func (s streamEngine) Set(ctx context.Context, t target.Target, toxics []fault.Toxic, deadline time.Time) error {
	if t.Toxiproxy != nil {
		return s.remote.Set(ctx, *t.Toxiproxy, toxics, deadline)
	}
	socket, err := s.labs.ProxySocket(t.Lab, t.Proxy)
	if err != nil {
		return err
	}
	return s.proxies.Set(ctx, socket, toxics, deadline)
}

func (s streamEngine) Read(ctx context.Context, t target.Target) ([]fault.Toxic, error) {
	if t.Toxiproxy != nil {
		return s.remote.Read(ctx, *t.Toxiproxy)
	}
	socket, err := s.labs.ProxySocket(t.Lab, t.Proxy)
	if err != nil {
		return nil, err
	}
	toxics, err := s.proxies.Read(ctx, socket)
	if errors.Is(err, unix.ECONNREFUSED) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err) // the proxy has died
	}
	return toxics, err
}

func (s streamEngine) Clear(ctx context.Context, t target.Target) error {
	if t.Toxiproxy != nil {
		return s.remote.Clear(ctx, *t.Toxiproxy)
	}
	socket, err := s.labs.ProxySocket(t.Lab, t.Proxy)
	if err != nil {
		return err
	}
	err = s.proxies.Clear(ctx, socket)
	if stuck, ok := errors.AsType[*stream.StuckError](err); ok && stuck.Recovered {
		return nil // started anew, without toxics
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil // the proxy has died, and its toxics with it
	}
	return err
}
