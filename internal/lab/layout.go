package lab

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"

	"netemd/internal/target"
	"netemd/namespaces"
)

// wireNode is the node of a wire; a lab's further wires are wire2, wire3 and so on.
const wireNode = "wire"

// Namespace returns the name of a node's namespace below /run/netns.
func (d Definition) Namespace(node string) string { return "netem-" + d.Name + "-" + node }

// wire returns the name of the node in the middle of link i; empty when it is direct.
func (d Definition) wire(i int) string {
	if d.Links[i].Direct {
		return ""
	}
	number := 1
	for _, l := range d.Links[:i] {
		if !l.Direct {
			number++
		}
	}
	if number == 1 {
		return wireNode
	}
	return fmt.Sprintf("%s%d", wireNode, number)
}

// nodes returns the names of all nodes, wires last.
func (d Definition) nodes() []string {
	var names []string
	for _, n := range d.Nodes {
		names = append(names, n.Name)
	}
	for i := range d.Links {
		if w := d.wire(i); w != "" {
			names = append(names, w)
		}
	}
	return names
}

// port is one end of a veth pair in a lab.
type port struct {
	node, device string
	mac          net.HardwareAddr
	// own is its address; not valid on a wire, which needs none.
	own netip.Addr
	// far are the addresses that are reached through it.
	far netip.Addr
}

// cable is a veth pair in a lab.
type cable struct{ a, b port }

// device returns the name of node's device for link i: eth0 for its first link.
func (d Definition) device(node string, i int) string {
	number := 0
	for _, l := range d.Links[:i] {
		if l.A == node || l.B == node {
			number++
		}
	}
	return fmt.Sprintf("eth%d", number)
}

// cables returns the veth pairs of link i: one, or the two that meet in the wire.
func (d Definition) cables(i int) []cable {
	l := d.Links[i]
	end := func(node, peer string) port {
		return port{node: node, device: d.device(node, i), own: l.address(node), far: l.address(peer), mac: d.mac(i, node, "node")}
	}
	a, b := end(l.A, l.B), end(l.B, l.A)
	w := d.wire(i)
	if w == "" {
		return []cable{{a, b}}
	}
	face := func(node string) port {
		return port{node: w, device: namespaces.Shorten(node), far: l.address(node), mac: d.mac(i, node, wireNode)}
	}
	return []cable{{a, face(l.A)}, {face(l.B), b}}
}

// mac returns a stable, locally administered address, so that both ends' neighbour
// entries are known before the devices are.
func (d Definition) mac(i int, node, side string) net.HardwareAddr {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%s/%s", d.Name, i, node, side))
	mac := net.HardwareAddr(sum[:6])
	mac[0] = mac[0]&^1 | 2
	return mac
}

// Resolve returns the lab's targets as they will be: Place.Index is 0. It needs no
// kernel, and a valid definition.
func (d Definition) Resolve() ([]target.Target, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("lab %s: %w", d.Name, err)
	}
	var all []target.Target
	for _, t := range d.Targets {
		i, l, _ := d.between(t.Client, t.Node)
		server := l.address(t.Node)
		port := uint16(0)
		if len(t.Ports) > 0 {
			port = t.Ports[0].First
		}
		out := target.Target{
			Name: t.Name, Lab: d.Name, Node: t.Node,
			Address:         netip.AddrPortFrom(server, port),
			ClientNamespace: d.Namespace(t.Client), ServerNamespace: d.Namespace(t.Node),
			To:   d.egress(i, t.Node),
			From: d.egress(i, t.Client),
		}
		for _, ports := range t.Ports {
			out.To.Match.Include = append(out.To.Match.Include, target.Flow{Protocol: t.Protocol, Destination: host(server), DestinationPorts: ports})
		}
		out.From.Match = out.To.Match.Reverse()
		if s, ok := d.service(t.Proxy); ok {
			out.Proxy = netip.AddrPortFrom(server, s.Port)
		}
		all = append(all, out)
	}
	return all, nil
}

// egress is where packets towards node leave on link i: the wire's device that faces
// it, or the other node's own device where there is no wire.
func (d Definition) egress(i int, node string) target.Place {
	p := target.Place{Hook: target.Egress, Owned: true}
	if w := d.wire(i); w != "" {
		p.Namespace, p.Device = d.Namespace(w), namespaces.Shorten(node)
		return p
	}
	from := d.Links[i].A
	if from == node {
		from = d.Links[i].B
	}
	p.Namespace, p.Device = d.Namespace(from), d.device(from, i)
	return p
}

// service returns the service of that name.
func (d Definition) service(name string) (ServiceDefinition, bool) {
	for _, n := range d.Nodes {
		for _, s := range n.Services {
			if s.Name == name {
				return s, true
			}
		}
	}
	return ServiceDefinition{}, false
}

// host is the prefix of the one address.
func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// wireDevices returns the egress of every wire's devices.
func (d Definition) wireDevices() []target.Place {
	var places []target.Place
	for i, l := range d.Links {
		if !l.Direct {
			places = append(places, d.egress(i, l.A), d.egress(i, l.B))
		}
	}
	return places
}
