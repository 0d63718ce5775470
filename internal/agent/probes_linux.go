package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"netemd/internal/fault"
	"netemd/internal/lease"
	"netemd/internal/prober"
	"netemd/internal/target"
	"netemd/probe"
)

// probing counts the probes of each owner. The zero value has none.
type probing struct {
	mu sync.Mutex
	of map[string]int
}

// begin lets a probe begin, which ends with end.
func (p *probing) begin(who string, most int) (end func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[who] >= most {
		return nil, fmt.Errorf("probe: %w: %s has %d running, which is the most for one owner (limits.probes_per_owner)", fault.ErrBusy, who, p.of[who])
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.of[who]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.of[who]--; p.of[who] == 0 {
			delete(p.of, who)
		}
	}, nil
}

// measure runs a probe of an owner against a target, with the kernel's evidence. The error is
// fault.ErrBusy when that owner has as many running as one may.
func (a *Agent) measure(ctx context.Context, who string, r probe.Request, report func(done, count int)) (probe.Result, error) {
	r = r.WithDefaults()
	if err := r.Validate(); err != nil {
		return probe.Result{}, err
	}
	r.Target = canonical(r.Target)
	if err := a.oneMeant(ctx, r.Target); err != nil {
		return probe.Result{}, err
	}
	t, err := a.resolve(ctx, r.Target)
	if err != nil {
		return probe.Result{}, err
	}
	if !t.Address.IsValid() {
		return probe.Result{}, fmt.Errorf("probe: target %s says no one address and port that a client could connect to: %w", t.Name, errors.ErrUnsupported)
	}
	done, err := a.probing.begin(who, a.cfg.Settings.Limits.ProbesPerOwner)
	if err != nil {
		return probe.Result{}, err
	}
	defer done()
	login, err := a.labs.Postgres(t.Lab, t.Address)
	if err != nil {
		return probe.Result{}, err
	}
	address := t.Address
	if r.Layer == probe.LayerProxy {
		if !t.Proxy.IsValid() {
			return probe.Result{}, fmt.Errorf("probe: target %s has no proxy: %w", t.Name, errors.ErrUnsupported)
		}
		address = t.Proxy
	}
	return prober.Measure(ctx, prober.Config{
		ClientNamespace: t.ClientNamespace, ServerNamespace: t.ServerNamespace,
		Order:       prober.Order{Request: r, Address: address, User: login.User, Password: login.Password, Database: login.Database},
		PathDelayed: a.pathDelayed(ctx, r, t),
		Report:      func(p probe.Progress) { report(p.Done, p.Count) },
	})
}

// pathDelayed reports whether a fault delays everything on the way to a target: its
// own, or one on its packets at a device of its lab.
func (a *Agent) pathDelayed(ctx context.Context, r probe.Request, t target.Target) bool {
	for _, f := range a.leases.List(ctx) {
		if f.Spec.Packet != nil && r.Layer != probe.LayerProxy && f.Spec.Packet.Delay > 0 && (f.Spec.Target == t.Key() || a.onTheWay(ctx, f, t)) {
			return true
		}
		for _, x := range f.Spec.Toxics {
			if f.Spec.Target == t.Key() && r.Layer == probe.LayerProxy && (x.Kind == fault.Latency || x.Kind == fault.Bandwidth || x.Kind == fault.Slicer) {
				return true
			}
		}
	}
	return false
}

// onTheWay reports whether a fault on a device meets the packets of t.
func (a *Agent) onTheWay(ctx context.Context, f fault.Fault, t target.Target) bool {
	if f.Spec.Selector == nil || !slices.Contains([]string{t.ClientNamespace, t.ServerNamespace, t.To.Namespace}, f.Spec.Selector.Namespace) {
		return false
	}
	held, err := a.leases.Held(ctx, f.ID)
	if err != nil {
		return false // it has ended
	}
	return slices.ContainsFunc(held.Places, func(h lease.Held) bool {
		return h.Place.Match.Overlaps(t.To.Match) || h.Place.Match.Overlaps(t.From.Match)
	})
}
