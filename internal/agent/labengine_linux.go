package agent

import (
	"context"
	"time"

	"netemd/internal/lab"
	"netemd/internal/lease"
	"netemd/internal/target"
	"netemd/qdisc"
)

// labEngine carries the base impairments of labs by the engine that the kernel has. Nobody
// holds them: they last as long as their lab.
type labEngine struct{ lease.Engine }

// baseEngine is what labs get; nil on a kernel that no engine works on.
func (a *Agent) baseEngine() lab.Engine {
	e := a.engines[a.features.Auto]
	if e == nil {
		return nil
	}
	return labEngine{e}
}

func (e labEngine) Set(ctx context.Context, p target.Place, n qdisc.Netem) error {
	return e.Engine.Set(ctx, p, n.Normalize(), time.Time{}) // without a deadline
}

func (e labEngine) Read(ctx context.Context, p target.Place) (qdisc.Netem, error) {
	s, err := e.Engine.Read(ctx, p)
	return s.Netem, err
}
