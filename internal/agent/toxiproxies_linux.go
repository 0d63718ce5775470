package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"netemd/internal/engine/stream"
	"netemd/internal/fault"
	"netemd/internal/journal"
	"netemd/internal/target"
)

// What the agent calls is called by root, from this host: whoever may apply a fault must not
// reach by it what he cannot reach himself. A user of this host reaches loopback, and so may
// have it called; a peer with a certificate reaches nothing here, and a unix socket is
// guarded by its mode, which does not hold root up. All else takes the configuration's word.

// mayCall refuses an API of a Toxiproxy that the fault's owner may not have called, with
// fault.ErrDenied.
func (a *Agent) mayCall(ctx context.Context, s fault.Spec, p target.Toxiproxy) error {
	allow := a.cfg.Settings.Toxiproxy
	owner := s.Whose()
	root := owner == "" || owner == "uid:0"
	if file, ok := strings.CutPrefix(p.API, "unix:"); ok {
		if root || slices.Contains(allow.Allow, file) {
			return nil
		}
		return notAllowed(p, "a unix socket is for root", file)
	}
	addresses, err := apiAddresses(ctx, p.API)
	if err != nil {
		return fmt.Errorf("toxiproxy: %w", err)
	}
	for _, at := range addresses {
		switch {
		case allow.Covers(at):
		case !at.IsLoopback():
			return notAllowed(p, at.String()+" is no loopback address", at.String())
		case !reachesLoopback(s):
			return notAllowed(p, "a client with a certificate has no loopback address called", at.String())
		}
	}
	return nil
}

// reachesLoopback reports whether who asked for a fault is a user of this host.
func reachesLoopback(s fault.Spec) bool {
	owner := s.Whose()
	return owner == "" || strings.HasPrefix(owner, "uid:")
}

func notAllowed(p target.Toxiproxy, why, entry string) error {
	return fault.WithHint(fmt.Errorf("%w: the agent does not call the Toxiproxy at %s for this: %s", fault.ErrDenied, p.API, why),
		fmt.Sprintf("this in the agent's configuration would allow it: toxiproxy: {allow: [%q]}", entry))
}

// apiAddresses are those of HOST:PORT, at least one.
func apiAddresses(ctx context.Context, api string) ([]netip.Addr, error) {
	host := strings.Trim(api[:strings.LastIndexByte(api, ':')], "[]")
	if at, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{at.Unmap()}, nil
	}
	found, err := lookup(ctx, host)
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found, err
}

// sweepToxiproxies takes away what a dead agent made on the Toxiproxies of others, as its
// journal says, and returns what it did in words.
func sweepToxiproxies(ctx context.Context, cfg Config, open []journal.Entry) (done []string, err error) {
	disabled := map[string][]string{} // proxies, by the API
	loopback := map[string]bool{}     // who asked may reach it
	for _, e := range open {
		d, err := target.Parse(e.Fault.Spec.Target)
		if e.Fault.Proxy != "" { // called by a name
			d, err = target.Parse(e.Fault.Proxy)
		}
		p, bad := target.ParseToxiproxy(d.Toxiproxy)
		if err != nil || bad != nil {
			continue
		}
		down := slices.ContainsFunc(e.Fault.Spec.Toxics, func(t fault.Toxic) bool { return t.Kind == fault.Down })
		loopback[p.API] = loopback[p.API] || reachesLoopback(e.Fault.Spec)
		if disabled[p.API] == nil {
			disabled[p.API] = []string{}
		}
		if down && p.Name != "" {
			disabled[p.API] = append(disabled[p.API], p.Name)
		}
	}
	remote, _ := stream.NewRemote(cfg.StateDir, cfg.Settings.Toxiproxy.Prefixes())
	var errs []error
	var mu sync.Mutex
	var wait sync.WaitGroup // at the same time: one that hangs holds up no other
	for api, names := range disabled {
		wait.Go(func() {
			d, err := remote.Sweep(ctx, target.Toxiproxy{API: api, Loopback: loopback[api]}, names)
			mu.Lock()
			defer mu.Unlock()
			done, errs = append(done, d...), append(errs, err)
		})
	}
	wait.Wait()
	slices.Sort(done)
	return done, errors.Join(errs...)
}
