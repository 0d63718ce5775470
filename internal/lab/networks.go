package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// AutomaticNetwork is where the networks of links and switches come from that have none of
// their own: the links' and switches' in the order of the definition, a /24 each, without
// those that overlap with a given one. It lies in 10.0.0.0/8, which is for private use (RFC
// 1918), above what home and office networks mostly take.
var AutomaticNetwork = netip.MustParsePrefix("10.64.0.0/10")

const automaticBits = 24

// network is one subnet of each family at most, and who has addresses in it: the two ends
// of a link, or the nodes at a switch.
type network struct {
	// path is its field in the definition.
	path string
	// prefixes are of IPv4 and IPv6, each at most once.
	prefixes []netip.Prefix
	members  []*member
	// at is the switch's spot, nil for a link.
	at *spot
}

// member is a node in a network, by one of its links.
type member struct {
	spot      *spot
	link      int
	addresses []netip.Addr
	// device is the node's own; outer is the one of its link that the switch's port is the
	// peer of, or the node's own again.
	device, outer *device
}

// prefix returns the network's subnet of the address's family.
func (n *network) prefix(six bool) (netip.Prefix, bool) {
	for _, p := range n.prefixes {
		if p.Addr().Is6() == six {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// address returns the member's first address of a family; not valid without one.
func (m *member) address(six bool) netip.Addr {
	for _, a := range m.addresses {
		if a.Is6() == six {
			return a
		}
	}
	return netip.Addr{}
}

// subnet is a given network with its field.
type subnet struct {
	path   string
	prefix netip.Prefix
}

// networks gives each switch, and each link that ends at none, its subnets: first the
// switches in their order, then the links. A link at a switch has nil.
func (d Definition) networks(bad *mistakes) (switches, links []*network) {
	var given []subnet
	var automatic []*network
	newNetwork := func(path string, first, six netip.Prefix) *network {
		n := &network{path: path}
		for _, s := range []subnet{{path + ".subnet", first}, {path + ".subnet6", six}} {
			if s.prefix.IsValid() && bad.subnet(s) {
				n.prefixes = append(n.prefixes, s.prefix)
				given = append(given, s)
			}
		}
		if six.IsValid() && !six.Addr().Is6() || six.IsValid() && first.IsValid() && first.Addr().Is6() {
			bad.refuse(path+".subnet6", six.String(), "a network of IPv6, beside one of IPv4")
		}
		if !first.IsValid() {
			automatic = append(automatic, n)
		}
		return n
	}
	switchOf := map[string]bool{}
	for _, s := range d.Switches {
		switchOf[s.Name] = true
		switches = append(switches, newNetwork("switches."+s.Name, s.Subnet, s.Subnet6))
	}
	for i, l := range d.Links {
		if switchOf[l.A] || switchOf[l.B] {
			links = append(links, nil)
			continue
		}
		links = append(links, newNetwork(linkPath(i), l.Subnet, l.Subnet6))
	}
	taken := bad.overlaps(given)
	next := AutomaticNetwork.Addr()
	for _, n := range automatic {
		p, ok := free(&next, taken)
		if !ok {
			bad.refuse(n.path+".subnet", "", fmt.Sprintf("a network of your own; the automatic ones, a /%d each of %v, are all taken", automaticBits, AutomaticNetwork))
			break
		}
		n.prefixes = slices.Insert(n.prefixes, 0, p)
	}
	return switches, links
}

// free returns the first automatic network at or after next that none of the taken ones,
// which are in order, overlaps with, and moves next on.
func free(next *netip.Addr, taken []netip.Prefix) (netip.Prefix, bool) {
	for AutomaticNetwork.Contains(*next) {
		p := netip.PrefixFrom(*next, automaticBits)
		last := lastOf(p)
		// The taken one that begins last, at or before p's end, is the one that can reach it.
		i, _ := slices.BinarySearchFunc(taken, last, func(t netip.Prefix, a netip.Addr) int {
			if t.Addr().Compare(a) <= 0 {
				return -1
			}
			return 1
		})
		if i > 0 && taken[i-1].Overlaps(p) {
			if after := lastOf(taken[i-1]); after.Compare(last) > 0 {
				last = after
			}
			*next = last.Next()
			continue
		}
		*next = last.Next()
		return p, true
	}
	return netip.Prefix{}, false
}

// lastOf is the last address of a network.
func lastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// settle gives a network's members their addresses: those that are given, and else the
// first that are free, in their order.
func (n *network) settle(d Definition, bad *mistakes) {
	used := map[netip.Addr]string{}
	for _, m := range n.members {
		l, field := d.Links[m.link], ".address_b"
		addresses := l.AddressB
		if l.A == m.spot.name {
			addresses, field = l.AddressA, ".address_a"
		}
		path := linkPath(m.link) + field
		if len(addresses) > maxAddresses {
			bad.refuse(path, fmt.Sprint(len(addresses)), fmt.Sprintf("at most %d addresses", maxAddresses))
		}
		for _, a := range addresses {
			p, ok := n.prefix(a.Is6())
			switch {
			case !ok || !usable(p, a):
				bad.refuse(path, a.String(), "an address in "+n.text()+", neither its first nor its last")
			case used[a] != "":
				bad.say(path, a.String(), "is "+used[a]+"'s already", "another address, or the key left out")
			default:
				used[a] = m.spot.name
				m.addresses = append(m.addresses, a)
			}
		}
	}
	for _, p := range n.prefixes {
		next := p.Addr().Next()
		for _, m := range n.members {
			if m.address(p.Addr().Is6()).IsValid() {
				continue
			}
			for used[next] != "" {
				next = next.Next()
			}
			if !usable(p, next) {
				bad.refuse(n.path+".subnet", p.String(), fmt.Sprintf("a network with an address for each of its %d nodes", len(n.members)))
				return
			}
			used[next] = m.spot.name
			m.addresses = append(m.addresses, next)
		}
	}
	for _, m := range n.members {
		slices.SortStableFunc(m.addresses, func(a, b netip.Addr) int { return a.BitLen() - b.BitLen() })
	}
}

// usable says whether a node may have the address: the first of a network is the
// network's own name, and the last one of IPv4 is for broadcasts.
func usable(p netip.Prefix, a netip.Addr) bool {
	return p.Contains(a) && a != p.Addr() && (a.Is6() || a != lastOf(p))
}

// text is "10.64.0.0/24" or both networks.
func (n *network) text() string {
	var all []string
	for _, p := range n.prefixes {
		all = append(all, p.String())
	}
	return strings.Join(all, " or ")
}
