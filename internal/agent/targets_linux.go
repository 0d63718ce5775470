package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/internal/target"
)

// resolveSpec finds what a fault is aimed at, as it is now.
func (a *Agent) resolveSpec(ctx context.Context, s fault.Spec) (target.Target, error) {
	if s.Selector != nil {
		return target.Resolve(ctx, *s.Selector, lookup)
	}
	ts, err := a.labs.Targets(ctx)
	if err != nil {
		return target.Target{}, err
	}
	if t, ok := lab.KeptTarget(ts, s.Target); ok {
		return t, nil
	}
	return a.resolve(ctx, s.Target)
}

// lookupTime bounds one look-up of a host name, and lookupEvery is how often the names
// of the faults that are held are looked up again.
const (
	lookupTime  = 5 * time.Second
	lookupEvery = 10 * time.Second
)

// lookup asks the host's own resolver, in the agent's namespace.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookupTime, errors.New("the name server took too long"))
	defer cancel()
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

// resolve finds a target that exists now.
func (a *Agent) resolve(ctx context.Context, name string) (target.Target, error) {
	ts, err := a.labs.Targets(ctx)
	if err != nil {
		return target.Target{}, err
	}
	t, err := lab.FindTarget(ts, name)
	if errors.Is(err, target.ErrUnknown) {
		err = unknownTarget(name, ts)
	}
	return t, err
}

// unknownTarget names the targets that there are, or the lab that would bring the
// one asked for.
func unknownTarget(name string, known []target.Target) error {
	for _, d := range labfile.Builtins() {
		for _, t := range d.Targets {
			if t.Name == name {
				return fault.WithHint(fmt.Errorf("%w %q: lab %s, which has it, is not up", target.ErrUnknown, name, d.Name), "netemctl lab up "+d.Name)
			}
		}
	}
	if len(known) == 0 {
		first := labfile.Builtins()[0].Name
		return fault.WithHint(fmt.Errorf("%w %q: there are none, since no lab is up; labs: %s", target.ErrUnknown, name, first), "netemctl lab up "+first)
	}
	names := make([]string, len(known))
	for i, t := range known {
		names[i] = t.Name
	}
	return fmt.Errorf("%w %q: known: %s", target.ErrUnknown, name, strings.Join(names, ", "))
}
