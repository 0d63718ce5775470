package target

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"netemd/internal/cgroup"
	"netemd/qdisc"
)

// MaxFlows is how many flows, included and excluded, a match may have: each is
// compared with every packet, in one program in the kernel.
const MaxFlows = 64

// Lookup returns all addresses of a host, of both families.
type Lookup func(ctx context.Context, host string) ([]netip.Addr, error)

// Match is what s selects in the direction "to": every peer with every local end,
// port by port. Its Reverse is the direction "from". Host names are looked up now; an
// address of IPv4 covers IPv4 alone, and a port without an address both families. The
// error is a *qdisc.FieldError when nothing is selected or too many flows are, and
// names the host that could not be looked up.
func (s Selector) Match(ctx context.Context, lookup Lookup) (Match, error) {
	known := map[string][]netip.Prefix{}
	for _, h := range s.hosts() {
		addresses, err := find(ctx, lookup, h)
		if err != nil {
			return Match{}, fmt.Errorf("look up host %q: %w", h, err)
		}
		known[h] = addresses
	}
	m := Match{Control: s.Control}
	if !s.whole() {
		include, err := s.include(known)
		if err != nil {
			return Match{}, err
		}
		m.Include = include
	}
	for _, p := range prefixes(s.ExcludePeers, known) {
		if p.IsValid() {
			m.Exclude = append(m.Exclude, Flow{Destination: p})
		}
	}
	for _, p := range s.ExcludePorts {
		m.Exclude = append(m.Exclude, Flow{SourcePorts: p}, Flow{DestinationPorts: p})
	}
	m.Exclude = compact(m.Exclude)
	if s.Cgroup != "" {
		c, err := cgroup.Find(s.Cgroup)
		if err != nil {
			return Match{}, err
		}
		m = m.Of(c)
	}
	if n := len(m.Include) + len(m.Exclude); n > MaxFlows {
		return Match{}, tooMany(n)
	}
	return m, nil
}

// find looks one host up. Its addresses come in order, each once, so that a name
// server which turns them round changes nothing.
func find(ctx context.Context, lookup Lookup, name string) ([]netip.Prefix, error) {
	if lookup == nil {
		return nil, fmt.Errorf("host names are looked up by the agent only: %w", errors.ErrUnsupported)
	}
	addresses, err := lookup(ctx, name)
	if err != nil {
		return nil, err
	}
	var found []netip.Prefix
	for _, a := range addresses {
		if a.IsValid() {
			found = append(found, host(a))
		}
	}
	if len(found) == 0 {
		return nil, errors.New("it has no address")
	}
	slices.SortFunc(found, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr()) })
	return slices.Compact(found), nil
}

// include is the product of both ends. No more of it is made than a match may have: of
// four full lists it would fill the memory.
func (s Selector) include(known map[string][]netip.Prefix) ([]Flow, error) {
	var flows []Flow
	n := 0
	peerPorts, localPorts := compact(orAny(s.PeerPorts)), compact(orAny(s.LocalPorts))
	for _, peer := range compact(prefixes(s.Peers, known)) {
		for _, local := range compact(prefixes(s.Locals, known)) {
			f, ok := family(peer, local)
			if !ok || f == 4 && s.Protocol == icmpv6 || f == 6 && s.Protocol == icmp {
				continue
			}
			if n += len(peerPorts) * len(localPorts); n > MaxFlows {
				continue
			}
			for _, pp := range peerPorts {
				for _, lp := range localPorts {
					flows = append(flows, Flow{
						Protocol: s.Protocol, Source: local, Destination: peer, SourcePorts: lp, DestinationPorts: pp,
						FlagsSet: s.FlagsSet, FlagsClear: s.FlagsClear,
					})
				}
			}
		}
	}
	switch {
	case n > MaxFlows:
		return nil, tooMany(n)
	case n == 0:
		return nil, &qdisc.FieldError{
			Field: "dst", Value: fmt.Sprint(s.Peers), Want: "addresses of the same family as the local ones and the protocol; nothing is selected",
		}
	}
	return flows, nil
}

func tooMany(n int) error {
	return &qdisc.FieldError{
		Field: "dst", Want: fmt.Sprintf("at most %d flows, not %d: each address, of both ends and of each host name, counts once for each port, and each excluded port twice", MaxFlows, n),
	}
}

// prefixes are what the ends of one side stand for; one that is not valid, any, when
// there are none.
func prefixes(ends []string, known map[string][]netip.Prefix) []netip.Prefix {
	var all []netip.Prefix
	for _, e := range ends {
		if p, err := parsePrefix(e); err == nil {
			all = append(all, p)
		} else {
			all = append(all, known[e]...)
		}
	}
	return orAny(all)
}

func orAny[T any](list []T) []T {
	if len(list) == 0 {
		return make([]T, 1)
	}
	return list
}

// compact drops what is there twice.
func compact[T comparable](list []T) []T {
	var once []T
	seen := map[T]bool{}
	for _, v := range list {
		if !seen[v] {
			seen[v] = true
			once = append(once, v)
		}
	}
	return once
}
