package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"netemd/internal/engine/stream"
	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/internal/location"
	"netemd/internal/target"
	"netemd/qdisc"
)

// resolveSpec finds what a fault is aimed at, as it is now.
func (a *Agent) resolveSpec(ctx context.Context, s fault.Spec) (target.Target, error) {
	if s.Outage != nil {
		return target.Target{}, a.servicesStand(s.Outage.Services)
	}
	t, err := a.aimedAt(ctx, s)
	if err != nil || t.Toxiproxy == nil {
		return t, err
	}
	if s.Request != nil {
		return t, &qdisc.FieldError{Field: "target", Value: s.Target, Want: "a target with an http-proxy, which a lab's may have: somebody else's proxy knows connections alone"}
	}
	if s.OnPackets() {
		return t, &qdisc.FieldError{Field: "target", Value: s.Target, Want: "a target with packets: a proxy has connections alone, which toxics act on ('netemctl toxic')"}
	}
	for _, x := range s.Toxics {
		if x.Seed != 0 {
			return t, stream.ErrSeed(x)
		}
	}
	p := *t.Toxiproxy
	p.Loopback = reachesLoopback(s)
	t.Toxiproxy = &p
	return t, a.mayCall(ctx, s, p)
}

func (a *Agent) aimedAt(ctx context.Context, s fault.Spec) (target.Target, error) {
	if s.Selector != nil {
		return target.Resolve(ctx, *s.Selector, lookup)
	}
	if t, ok, err := a.defined(ctx, s.Target); ok {
		return t, err
	}
	ts, err := a.labs.Targets(ctx)
	if err != nil {
		return target.Target{}, err
	}
	if t, ok := lab.KeptTarget(ts, s.Target); ok {
		return t, location.There(ctx, t)
	}
	return a.oneOf(ctx, s.Target, ts)
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

// resolve finds a target that exists now, by its name or its inline form. A name is looked
// for in the configuration, among those that were added, and in the labs, in this order.
func (a *Agent) resolve(ctx context.Context, text string) (target.Target, error) {
	if t, ok, err := a.defined(ctx, text); ok {
		return t, err
	}
	return a.labTarget(ctx, text)
}

// defined finds a target by its inline form, or by a name of the configuration or one that was
// added; ok is false for a text that is neither.
func (a *Agent) defined(ctx context.Context, text string) (t target.Target, ok bool, err error) {
	d, origin, ok := a.definitions.find(text)
	if target.Inline(text) {
		origin, ok = target.OriginInline, true
		if d, err = target.Parse(text); err != nil {
			return target.Target{}, true, err
		}
	}
	if ok {
		t, err = a.locate(ctx, d, origin)
	}
	return t, ok, err
}

// locate finds where a target is now; the error is target.ErrVanished for one of which the
// namespace or the device is gone, as it is for those of other kinds.
func (a *Agent) locate(ctx context.Context, d target.Definition, origin target.Origin) (target.Target, error) {
	t, err := a.locateNew(ctx, d, origin)
	if gone := (*target.NotThereError)(nil); errors.As(err, &gone) {
		err = fmt.Errorf("%w: %s", target.ErrVanished, err.Error()) // in words alone: it is no bad input
	}
	return t, err
}

// locateNew finds where a definition is that somebody has just written.
func (a *Agent) locateNew(ctx context.Context, d target.Definition, origin target.Origin) (target.Target, error) {
	t, err := location.Finder{Lookup: lookup, Avoid: a.avoid}.Find(ctx, d)
	if err != nil && d.Name != "" {
		err = fmt.Errorf("target %s (%s): %w", d.Name, d, err)
	}
	t.Origin = origin
	return t, err
}

// labTarget finds a target of a lab.
func (a *Agent) labTarget(ctx context.Context, name string) (target.Target, error) {
	ts, err := a.labs.Targets(ctx)
	if err != nil {
		return target.Target{}, err
	}
	return a.oneOf(ctx, name, ts)
}

// oneOf finds a target among those of the labs.
func (a *Agent) oneOf(ctx context.Context, name string, ofLabs []target.Target) (target.Target, error) {
	t, err := lab.FindTarget(ofLabs, name)
	if errors.Is(err, target.ErrUnknown) {
		err = a.unknownTarget(name, ofLabs)
	}
	if err == nil {
		err = location.There(ctx, t)
	}
	t.Origin = target.OriginLab
	return t, err
}

// unknownTarget names the targets that there are, or the lab that would bring the
// one asked for.
func (a *Agent) unknownTarget(name string, ofLabs []target.Target) error {
	for _, d := range labfile.Builtins() {
		for _, t := range d.Targets {
			if t.Name == name {
				return fault.WithHint(fmt.Errorf("%w %q: lab %s, which has it, is not up", target.ErrUnknown, name, d.Name), "netemctl lab up "+d.Name)
			}
		}
	}
	names := a.definitions.names()
	for _, t := range ofLabs {
		names = append(names, t.Name)
	}
	if len(names) == 0 {
		first := labfile.Builtins()[0].Name
		return fault.WithHint(fmt.Errorf("%w %q: there are none, since no lab is up; labs: %s", target.ErrUnknown, name, first),
			"netemctl lab up "+first+"; or aim at what runs here: --target container:NAME, pid:N, host:NAME, ...")
	}
	return fmt.Errorf("%w %q: known: %s", target.ErrUnknown, name, qdisc.Few(names))
}

// targets are all that have a name, by their origins. One that is nowhere now says why.
func (a *Agent) targets(ctx context.Context) ([]target.Target, error) {
	var all []target.Target
	defined := a.definitions.all()
	for _, o := range defined {
		t, err := a.locate(ctx, o.definition, o.origin)
		if err != nil {
			t = target.Target{Name: o.definition.Name, Definition: o.definition, Origin: o.origin, Missing: oneLine(err)}
		}
		all = append(all, t)
	}
	ofLabs, err := a.labs.Targets(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range ofLabs {
		if err := location.There(ctx, t); err != nil {
			t = target.Target{Name: t.Name, Lab: t.Lab, Node: t.Node, Missing: oneLine(err)}
		}
		t.Origin = target.OriginLab
		all = append(all, t)
	}
	return all, nil
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// avoid says why a device of the agent's own namespace is not taken unless it is named: a
// fault there could lock out whoever has to clear it.
func (a *Agent) avoid(index int) (string, error) {
	switch carries, err := carriesDefaultRoute(index); {
	case err != nil:
		return "", err
	case carries:
		return "carries the default route", nil
	}
	own := a.controls()
	if ssh, err := parseSSH(sessionOf(os.Getpid())); err == nil && ssh != (Connection{}) {
		own = append(own, ssh)
	}
	for _, c := range own {
		if passes(index, c) {
			return fmt.Sprintf("may carry a connection by which the agent is controlled (%s)", c), nil
		}
	}
	return "", nil
}
