package agent

import (
	"context"

	"netemd/internal/engine/application"
	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/target"
)

// requestEngine finds the control socket of a target's http-proxy for the application engine.
type requestEngine struct{ labs *lab.Manager }

func (e requestEngine) SetRequests(ctx context.Context, t target.Target, faults []fault.Fault) error {
	socket, err := e.labs.HTTPProxySocket(t.Lab, t.HTTPProxy)
	if err != nil {
		return err
	}
	return application.Set(ctx, socket, faults)
}

func (e requestEngine) ReadRequests(ctx context.Context, t target.Target) ([]fault.Fault, error) {
	socket, err := e.labs.HTTPProxySocket(t.Lab, t.HTTPProxy)
	if err != nil {
		return nil, err
	}
	return application.Read(ctx, socket)
}
