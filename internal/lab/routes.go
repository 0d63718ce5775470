package lab

import (
	"fmt"
	"net/netip"
	"slices"
)

// maxEntries bounds the routes and the neighbours of one lab, each of which is a call to
// the kernel and up to 500 bytes in it. In a lab where everything forwards, routes grow with
// the square of the nodes.
const maxEntries = 200_000

// firstTable is the routing table of what comes in by a wire's first device. The kernel's
// own begin at 253 (linux/rtnetlink.h, RT_TABLE_DEFAULT).
const firstTable = 100

// everything is the default route's network.
func everything(six bool) netip.Prefix {
	if six {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// hop is the first router on the way to somewhere: a member of a network that the host is
// in, too, and the host's own part in it.
type hop struct{ own, gateway *member }

// route finds all routes.
func (l *layout) route(bad *mistakes) {
	entries := 0
	for _, s := range l.spots {
		if s.role == hostRole {
			l.routeHost(s, bad)
			entries += len(s.routes)
		}
		for _, d := range s.devices {
			entries += len(d.neighbours)
		}
		if entries > maxEntries {
			bad.refuse("links", "", fmt.Sprintf("a lab of at most %d routes and neighbours; fewer nodes that forward, or smaller switches, need fewer", maxEntries))
			return
		}
	}
	for i := range l.chains {
		l.routeWires(i)
	}
}

// routeHost finds the routes of a host: to its own networks, then the automatic ones to all
// others, then those of the definition.
func (l *layout) routeHost(s *spot, bad *mistakes) {
	for _, n := range s.networks {
		own := n.of(s)
		for _, p := range n.prefixes {
			s.routes = append(s.routes, route{to: p, device: own.device, source: own.address(p.Addr().Is6())})
		}
	}
	s.routes = append(s.routes, l.automatic(s)...)
	for i, r := range s.node.Routes {
		path := fmt.Sprintf("nodes.%s.routes[%d]", s.name, i)
		found, ok := l.given(s, r)
		if !ok {
			bad.refuse(path+".via", r.Via, fmt.Sprintf("a node that %s shares a link or a switch with, or an address in one of its networks, of the family of %v", s.name, r.To))
			continue
		}
		if at := slices.IndexFunc(s.routes, func(o route) bool { return o.to == found.to }); at >= 0 {
			s.routes = slices.Delete(s.routes, at, at+1)
		}
		s.routes = append(s.routes, found)
	}
}

// of returns the member that the spot is.
func (n *network) of(s *spot) *member {
	for _, m := range n.members {
		if m.spot == s {
			return m
		}
	}
	return nil
}

// given turns a route of the definition into one by a device.
func (l *layout) given(s *spot, r Route) (route, bool) {
	six := r.To.Addr().Is6()
	via, err := netip.ParseAddr(r.Via)
	for _, n := range s.networks {
		own := n.of(s)
		if err == nil {
			if p, ok := n.prefix(six); ok && usable(p, via) && via != own.address(six) {
				return route{to: r.To.Masked(), device: own.device, via: via, source: own.address(six)}, true
			}
			continue
		}
		for _, m := range n.members {
			if m.spot.name == r.Via && m.spot != s && m.address(six).IsValid() {
				return route{to: r.To.Masked(), device: own.device, via: m.address(six), source: own.address(six)}, true
			}
		}
	}
	return route{}, false
}

// automatic finds the shortest path, in routers, to each network that the host is not in.
// A host that does not forward and has one way out has one default route.
func (l *layout) automatic(s *spot) []route {
	if h, ok := s.onlyWay(); ok && !s.node.Forward {
		// The usual leaf, without a look at the rest of a large lab.
		if len(h.gateway.spot.networks) == 1 {
			return nil
		}
		return h.defaults()
	}
	ways, all := l.ways(s)
	if len(all) == 0 {
		return nil
	}
	one := !s.node.Forward
	for _, n := range all {
		one = one && ways[n] == ways[all[0]]
	}
	if one {
		return ways[all[0]].defaults()
	}
	var routes []route
	for _, n := range all {
		for _, p := range n.prefixes {
			routes = append(routes, ways[n].to(p)...)
		}
	}
	return routes
}

// to is the route by the hop to a network, where both are of its family.
func (h hop) to(p netip.Prefix) []route {
	six := p.Addr().Is6()
	via, own := h.gateway.address(six), h.own.address(six)
	if !via.IsValid() || !own.IsValid() {
		return nil
	}
	return []route{{to: p, device: h.own.device, via: via, source: own}}
}

func (h hop) defaults() []route {
	return append(h.to(everything(false)), h.to(everything(true))...)
}

// onlyWay returns the one router that the spot shares a network with.
func (s *spot) onlyWay() (h hop, ok bool) {
	for _, n := range s.networks {
		for _, m := range n.members {
			if m.spot == s || !m.spot.node.Forward {
				continue
			}
			if ok {
				return hop{}, false
			}
			h, ok = hop{n.of(s), m}, true
		}
	}
	return h, ok
}

// ways returns the networks that s is not in and reaches, nearest first, and the first hop
// to each. Of paths of the same length the one is taken whose links come first.
func (l *layout) ways(s *spot) (map[*network]hop, []*network) {
	type step struct {
		spot  *spot
		first hop
	}
	ways := map[*network]hop{}
	var all []*network
	own := map[*network]bool{}
	seen := map[*spot]bool{s: true}
	var queue []step
	for _, n := range s.networks {
		own[n] = true
	}
	for _, n := range s.networks {
		me := n.of(s)
		for _, m := range n.members {
			if m.spot.node.Forward && !seen[m.spot] {
				seen[m.spot] = true
				queue = append(queue, step{m.spot, hop{me, m}})
			}
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, n := range at.spot.networks {
			if own[n] || ways[n] != (hop{}) {
				continue
			}
			ways[n] = at.first
			all = append(all, n)
			for _, m := range n.members {
				if m.spot.node.Forward && !seen[m.spot] {
					seen[m.spot] = true
					queue = append(queue, step{m.spot, at.first})
				}
			}
		}
	}
	return ways, all
}

// routeWires gives the wires of link i a table for each of their devices: what comes in by
// one leaves by the other, whatever its address. Towards a switch it goes where the host
// that sent it would send it.
func (l *layout) routeWires(i int) {
	chain, n := l.chains[i], l.networks[i]
	for k := 1; k+1 < len(chain); k += 2 {
		for side, in := range chain[k : k+2] {
			out := chain[k+1-side]
			in.table = firstTable + side
			s := in.spot
			add := func(to netip.Prefix, via netip.Addr) {
				s.routes = append(s.routes, route{to: to, device: out, via: via, table: in.table})
			}
			end := l.byName[out.toward]
			if end.role == hostRole {
				for _, m := range n.members {
					if m.link != i || m.spot != end {
						continue
					}
					for _, six := range []bool{false, true} {
						if a := m.address(six); a.IsValid() {
							add(everything(six), a)
						}
					}
				}
				continue
			}
			for _, p := range n.prefixes {
				add(p, netip.Addr{})
			}
			from := l.byName[in.toward]
			for _, r := range from.routes {
				if r.device.link == i && r.via.IsValid() {
					add(r.to, r.via)
				}
			}
		}
	}
}
