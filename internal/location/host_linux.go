package location

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// host finds the device by which a host is reached: where the routes of all its addresses
// lead. An address without a way there has no packets, and is left out.
func (f Finder) host(ctx context.Context, d target.Definition) (target.Target, error) {
	addresses, err := f.addresses(ctx, d.Host)
	if err != nil {
		return target.Target{}, err
	}
	ways := map[string][]netip.Addr{}
	var nowhere error
	err = within(d.Namespace, func(s *namespaces.Session) error {
		h, err := s.Links(ctx)
		if err != nil {
			return err
		}
		for _, a := range addresses {
			routes, err := h.RouteGet(a.AsSlice())
			if err != nil || len(routes) == 0 {
				nowhere = fmt.Errorf("route to %s: %w", a, errors.Join(err))
				continue
			}
			l, err := h.LinkByIndex(routes[0].LinkIndex)
			if err != nil {
				return fmt.Errorf("route to %s: device %d: %w", a, routes[0].LinkIndex, err)
			}
			ways[l.Attrs().Name] = append(ways[l.Attrs().Name], a)
		}
		return nil
	})
	switch {
	case err != nil:
		return target.Target{}, err
	case len(ways) == 0:
		return target.Target{}, fmt.Errorf("target host:%s: no way leads there from %s: %w", d.Host, whose(d.Namespace), nowhere)
	case len(ways) > 1:
		var words []string
		for _, name := range slices.Sorted(maps.Keys(ways)) {
			words = append(words, fmt.Sprintf("%s by %s", ways[name][0], name))
		}
		return target.Target{}, &qdisc.FieldError{Field: "host", Value: d.Host, Want: "one of its addresses, since they are reached by several devices: " + strings.Join(words, ", ")}
	}
	for name, reached := range ways {
		return f.way(ctx, d, name, reached)
	}
	return target.Target{}, nil // never: there is one
}

// way is the target at the device.
func (f Finder) way(ctx context.Context, d target.Definition, name string, reached []netip.Addr) (target.Target, error) {
	s := target.Selector{Namespace: d.Namespace, Device: name, Protocol: uint8(d.Protocol), PeerPorts: d.Ports}
	for _, a := range reached {
		s.Peers = append(s.Peers, a.String())
	}
	t, err := target.Resolve(ctx, s, nil)
	if err != nil {
		return target.Target{}, err
	}
	t.Moves, t.ClientNamespace = true, d.Namespace
	if len(d.Ports) == 1 && d.Ports[0].First == d.Ports[0].Last {
		t.Address = netip.AddrPortFrom(reached[0], d.Ports[0].First)
	}
	return t, nil
}

// addresses are those of a host, in order.
func (f Finder) addresses(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a.Unmap()}, nil
	}
	if f.Lookup == nil {
		return nil, fmt.Errorf("look up host %q: host names are looked up by the agent only: %w", host, errors.ErrUnsupported)
	}
	found, err := f.Lookup(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up host %q: %w", host, err)
	}
	var all []netip.Addr
	for _, a := range found {
		if a.IsValid() {
			all = append(all, a.Unmap().WithZone(""))
		}
	}
	if slices.SortFunc(all, netip.Addr.Compare); len(all) == 0 {
		return nil, fmt.Errorf("look up host %q: it has no address", host)
	}
	return slices.Compact(all), nil
}
