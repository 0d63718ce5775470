// Package location finds where the packets of a target's definition pass now: a container, a
// process, a namespace, a host or a device becomes a target.Target with both places.
package location

import (
	"context"

	"netemd/internal/container"
	"netemd/internal/target"
)

// Finder looks for definitions. The zero value knows no names of hosts and avoids nothing.
type Finder struct {
	// Lookup finds the addresses of a host's name, in the agent's namespace; nil: none is known.
	Lookup target.Lookup
	// Avoid says why the device with that index, of the agent's own namespace, is not chosen
	// unless it is named: it carries the default route, or the agent is reached by it. Empty:
	// it may be. nil: each may be.
	Avoid func(index int) (why string, err error)
	// Container finds one by its name or id; nil: container.Find.
	Container func(ctx context.Context, ref string) (container.Container, error)
}
