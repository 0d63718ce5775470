package lab

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// wireNode is the node of a wire; a lab's further wires are wire2, wire3 and so on, and the
// wire of a link's base impairment is that name with baseSuffix.
const (
	wireNode   = "wire"
	baseSuffix = "-base"
)

// bridgeDevice is the bridge of a switch. No node may have its name, since a switch's ports
// are named for the nodes that they lead to.
const bridgeDevice = "bridge"

// Namespace returns the name of a node's namespace below /run/netns.
func (d Definition) Namespace(node string) string { return "netem-" + d.Name + "-" + node }

// role is what a namespace of a lab is for.
type role int

const (
	hostRole role = iota
	switchRole
	wireRole
	baseRole
)

// spot is a namespace of a lab.
type spot struct {
	name string
	role role
	// node is the definition's, for a host.
	node    Node
	devices []*device
	// routes are in the order in which they can be added.
	routes []route
	// networks are those that a host has addresses in, by its devices.
	networks []*network
}

// forwards reports whether the kernel there passes packets on by their addresses.
func (s *spot) forwards() bool {
	return s.node.Forward || s.role == wireRole || s.role == baseRole
}

// device is one end of a veth pair.
type device struct {
	spot *spot
	name string
	mac  net.HardwareAddr
	peer *device
	link int
	// toward is the end of the link, a host's or a switch's name, that it leads to.
	toward string
	// addresses are a host's own.
	addresses  []netip.Addr
	neighbours []neighbour
	// table is where the routes are of what comes in by it; 0 is the usual one.
	table int
	// impairment is the base impairment of what leaves by it.
	impairment *qdisc.Netem
}

// neighbour is a permanent entry: a lost ARP would be taken for a lost SYN.
type neighbour struct {
	address netip.Addr
	mac     net.HardwareAddr
}

// route is a route of a spot.
type route struct {
	to     netip.Prefix
	device *device
	// via is not valid for what the device reaches by itself.
	via, source netip.Addr
	// table is 0 for the usual one. Others are those of wires, whose next hops need no
	// address of the wire's own.
	table int
}

// layout is what a lab consists of, before the kernel is asked.
type layout struct {
	definition Definition
	// six says that the lab has IPv6.
	six bool
	// spots are the hosts and switches in the definition's order, then the wires.
	spots  []*spot
	byName map[string]*spot
	// chains are, for each link, the devices along it from A to B: two, or two more for
	// each wire between. Those at 0 and 1 are peers, 2 and 3, and so on.
	chains [][]*device
	// networks are, for each link, the network that it belongs to.
	networks []*network
}

// newLayout lays a lab out whose names and references are right, and adds to bad what
// cannot be.
func newLayout(d Definition, bad *mistakes) *layout {
	l := &layout{definition: d, byName: map[string]*spot{}}
	for _, n := range d.Nodes {
		l.add(&spot{name: n.Name, role: hostRole, node: n})
	}
	for _, s := range d.Switches {
		l.add(&spot{name: s.Name, role: switchRole})
	}
	switches, links := d.networks(bad)
	for i, n := range switches {
		n.at = l.byName[d.Switches[i].Name]
		n.at.networks = append(n.at.networks, n)
	}
	wires := 0
	for i, link := range d.Links {
		if link.wired() || link.based() {
			wires++
		}
		l.chain(i, wires)
		n := links[i]
		if n == nil {
			n = l.end(i, switchRole).networks[0]
		}
		l.networks = append(l.networks, n)
		l.join(n, i)
	}
	for _, n := range append(switches, links...) {
		if n != nil {
			n.settle(d, bad)
			_, six := n.prefix(true)
			l.six = l.six || six
		}
	}
	for i := range d.Links {
		l.acquaint(i)
	}
	l.route(bad)
	return l
}

// wired and based report whether the link has a wire for faults, and one for its base
// impairment.
func (l Link) wired() bool { return !l.Direct }
func (l Link) based() bool { return l.AB != nil || l.BA != nil }

// wireName is the name of a lab's wire by its number, from 1.
func wireName(number int) string {
	if number == 1 {
		return wireNode
	}
	return fmt.Sprintf("%s%d", wireNode, number)
}

// spotNames returns the names of all namespaces of the lab in the order of a layout's
// spots. It takes any definition, also one that is not valid any more: what it names can be
// taken down.
func (d Definition) spotNames() []string {
	var names []string
	for _, n := range d.Nodes {
		names = append(names, n.Name)
	}
	for _, s := range d.Switches {
		names = append(names, s.Name)
	}
	wires := 0
	for _, l := range d.Links {
		if l.wired() || l.based() {
			wires++
		}
		if l.wired() {
			names = append(names, wireName(wires))
		}
		if l.based() {
			names = append(names, wireName(wires)+baseSuffix)
		}
	}
	return names
}

func (l *layout) add(s *spot) *spot {
	l.spots = append(l.spots, s)
	l.byName[s.name] = s
	return s
}

// end returns the link's end of a role, or nil.
func (l *layout) end(i int, r role) *spot {
	for _, name := range []string{l.definition.Links[i].A, l.definition.Links[i].B} {
		if s := l.byName[name]; s.role == r {
			return s
		}
	}
	return nil
}

// chain makes the devices of link i; number is that of its wire.
func (l *layout) chain(i, number int) {
	link := l.definition.Links[i]
	a, b := l.byName[link.A], l.byName[link.B]
	between := []*spot{a}
	if link.wired() {
		between = append(between, l.add(&spot{name: wireName(number), role: wireRole}))
	}
	if link.based() {
		between = append(between, l.add(&spot{name: wireName(number) + baseSuffix, role: baseRole}))
	}
	between = append(between, b)
	var chain []*device
	for k := range len(between) - 1 {
		left, right := l.device(between[k], i, b), l.device(between[k+1], i, a)
		left.peer, right.peer = right, left
		if left.spot.role == baseRole {
			left.impairment = link.AB
		}
		if right.spot.role == baseRole {
			right.impairment = link.BA
		}
		chain = append(chain, left, right)
	}
	l.chains = append(l.chains, chain)
}

// device adds the device to s that leads to an end of link i.
func (l *layout) device(s *spot, i int, end *spot) *device {
	name := namespaces.Shorten(end.name)
	if s.role == hostRole {
		name = fmt.Sprintf("eth%d", len(s.devices))
	}
	d := &device{spot: s, name: name, link: i, toward: end.name, mac: l.definition.mac(i, s.name, end.name)}
	s.devices = append(s.devices, d)
	return d
}

// mac returns a stable, locally administered address, so that both ends' neighbour
// entries are known before the devices are.
func (d Definition) mac(i int, spot, toward string) net.HardwareAddr {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%s/%s", d.Name, i, spot, toward))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^1 | 2
	return mac
}

// join makes the hosts at link i members of its network.
func (l *layout) join(n *network, i int) {
	chain := l.chains[i]
	first, last := chain[0], chain[len(chain)-1]
	for _, d := range []*device{first, last} {
		if d.spot.role != hostRole {
			continue
		}
		m := &member{spot: d.spot, link: i, device: d, outer: d}
		switch {
		case last.spot.role == switchRole:
			m.outer = last.peer
		case first.spot.role == switchRole:
			m.outer = first.peer
		}
		n.members = append(n.members, m)
		d.spot.networks = append(d.spot.networks, n)
	}
}

// acquaint gives the devices of link i their addresses and neighbours. A host, and a wire
// on its way, takes what is behind its link's next device for that device; where the bridge
// is next it is the one on the other side of it.
func (l *layout) acquaint(i int) {
	n, chain := l.networks[i], l.chains[i]
	for _, m := range n.members {
		if m.link == i {
			m.device.addresses = m.addresses
		}
	}
	for _, d := range chain {
		if d.spot.role == switchRole {
			continue
		}
		for _, m := range n.members {
			behind := m.spot.name == d.toward && m.link == i
			if l.byName[d.toward].role == switchRole {
				behind = m.link != i
			}
			if !behind {
				continue
			}
			mac := d.peer.mac
			if d.peer.spot.role == switchRole {
				mac = m.outer.mac
			}
			for _, a := range m.addresses {
				d.neighbours = append(d.neighbours, neighbour{a, mac})
			}
		}
	}
}

// pairs returns one device of each veth pair.
func (l *layout) pairs() []*device {
	var pairs []*device
	for _, chain := range l.chains {
		for k := 0; k < len(chain); k += 2 {
			pairs = append(pairs, chain[k])
		}
	}
	return pairs
}

// wireDevices returns the egress of the devices of all wires that faults can sit on.
func (l *layout) wireDevices() []target.Place {
	var places []target.Place
	for _, s := range l.spots {
		for _, d := range s.devices {
			if s.role == wireRole {
				places = append(places, l.at(d))
			}
		}
	}
	return places
}

// host is the prefix of the one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
