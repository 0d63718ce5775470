package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/lab"
)

// LabHold is a lab that this process holds; see client.LabHold.
type LabHold interface {
	Info() lab.Info
	Release(ctx context.Context) error
}

// planLab holds the plan's lab for a run, and makes it unless it is up. The run is to be made
// with the context that it returns: that ends, with the reason as its cause, when the lab is not
// what it was any more. release lets go of the lab, after ctx's end, too, and says that reason.
func (a *app) planLab(ctx context.Context, agent Agent, name string, pr *progress) (in context.Context, release func() (lost, err error), err error) {
	nothing := func() (lost, err error) { return nil, nil }
	if name == "" {
		return ctx, nothing, nil
	}
	request, err := a.labRequest(ctx, name, "")
	if err != nil {
		return ctx, nothing, err
	}
	in, broke := context.WithCancelCause(ctx)
	hold, err := agent.HoldLab(ctx, request, func(step string) { pr.step("lab: "+step, 0, 0) }, broke)
	if errors.Is(err, fs.ErrPermission) && isUp(ctx, agent, request.Name) {
		broke(nil)
		return ctx, nothing, nil // who may not make labs may use those of others
	}
	if err != nil {
		broke(nil)
		return ctx, nothing, err
	}
	return in, func() (lost, err error) {
		defer broke(nil)
		err = hold.Release(ctx)
		return context.Cause(in), err
	}, nil
}

// isUp says whether a lab of that name is up.
func isUp(ctx context.Context, agent Agent, name string) bool {
	_, _, err := agent.Lab(ctx, name)
	return err == nil
}

// brokeOff is why a run ended early, of which err is what it noticed itself: what was lost is the
// reason of all that follows from it. step is what was under way.
func brokeOff(ctx context.Context, step string, err, lost, released error) error {
	if lost == nil && errors.Is(released, client.ErrUnreachable) {
		lost = released // it has not been told yet
	}
	switch {
	case ctx.Err() != nil, lost == nil:
		err = errors.Join(err, released)
	default:
		err = lost
		if step != "" {
			err = fmt.Errorf("%s: %w", step, lost)
		}
		if !errors.Is(lost, released) {
			err = errors.Join(err, released)
		}
	}
	if errors.Is(err, client.ErrUnreachable) {
		err = fault.WithHint(err, "what the agent made may still be there: start it again, or run 'netemd cleanup'")
	}
	return err
}

// reason is why a run broke off, with what to do about it.
func reason(err error) string {
	if h := fault.HintOf(err); h != "" {
		return err.Error() + "; " + h
	}
	return err.Error()
}
