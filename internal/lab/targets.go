package lab

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"netemd/internal/target"
	"netemd/qdisc"
)

// Resolve returns the lab's targets as they will be: Place.Index is 0. It needs no
// kernel, and a valid definition.
func (d Definition) Resolve() ([]target.Target, error) {
	l, err := d.layout()
	if err != nil {
		return nil, fmt.Errorf("lab %s: %w", d.Name, err)
	}
	return l.targets()
}

func (l *layout) targets() ([]target.Target, error) {
	var all []target.Target
	for _, t := range l.definition.Targets {
		resolved, err := l.target(t)
		if err != nil {
			return nil, err
		}
		all = append(all, resolved)
	}
	return all, nil
}

// target finds where a target's packets pass.
func (l *layout) target(t TargetDefinition) (target.Target, error) {
	d := l.definition
	path := "targets." + t.Name
	node, client, err := l.ends(t)
	if err != nil {
		return target.Target{}, err
	}
	way, ok := l.way(client, node)
	if !ok {
		return target.Target{}, &qdisc.FieldError{Field: path + ".client", Value: client.name, Want: fmt.Sprintf("a node from which there is a way to %s; what lies between must have forward: true", node.name)}
	}
	last := way[len(way)-1]
	at := last
	if t.Link != "" {
		if at, err = l.onLink(t, node, way); err != nil {
			return target.Target{}, err
		}
	}
	reached := l.networks[last.link].of(node).addresses
	out := target.Target{
		Name: t.Name, Lab: d.Name, Node: node.name,
		ClientNamespace: d.Namespace(client.name), ServerNamespace: d.Namespace(node.name),
		To: l.place(at), From: l.place(at.back()),
	}
	port := uint16(0)
	if len(t.Ports) > 0 {
		port = t.Ports[0].First
	}
	out.Address = netip.AddrPortFrom(reached[0], port)
	if out.To.Match.Include, err = l.flows(t, node, reached); err != nil {
		return target.Target{}, err
	}
	out.From.Match = out.To.Match.Reverse()
	if t.Proxy != "" {
		s, ok := node.service(t.Proxy)
		if !ok || s.Kind != KindToxiproxy {
			return target.Target{}, &qdisc.FieldError{Field: path + ".proxy", Value: t.Proxy, Want: fmt.Sprintf("a service of node %s of kind %s", node.name, KindToxiproxy)}
		}
		out.Proxy = netip.AddrPortFrom(reached[0], s.Port)
	}
	if t.HTTPProxy != "" {
		s, ok := node.service(t.HTTPProxy)
		if !ok || s.Kind != KindHTTPProxy {
			return target.Target{}, &qdisc.FieldError{Field: path + ".http_proxy", Value: t.HTTPProxy, Want: fmt.Sprintf("a service of node %s of kind %s", node.name, KindHTTPProxy)}
		}
		out.HTTPProxy = netip.AddrPortFrom(reached[0], s.Port)
	}
	return out, nil
}

// service returns a service of the spot by its name.
func (s *spot) service(name string) (ServiceDefinition, bool) {
	i := slices.IndexFunc(s.node.Services, func(d ServiceDefinition) bool { return d.Name == name })
	if i < 0 {
		return ServiceDefinition{}, false
	}
	return s.node.Services[i], true
}

// ends returns a target's node and the node of its clients.
func (l *layout) ends(t TargetDefinition) (node, client *spot, err error) {
	path := "targets." + t.Name
	node, client = l.byName[t.Node], l.byName[t.Client]
	if node == nil || node.role != hostRole {
		return nil, nil, &qdisc.FieldError{Field: path + ".node", Value: t.Node, Want: "a node of the lab: " + known(l.hosts())}
	}
	if t.Client == "" {
		near := map[string]bool{}
		for _, n := range node.networks {
			for _, m := range n.members {
				if m.spot != node {
					near[m.spot.name], client = true, m.spot
				}
			}
		}
		if len(near) != 1 {
			return nil, nil, &qdisc.FieldError{Field: path + ".client", Want: fmt.Sprintf("a node: %s has %d neighbours (%s)", node.name, len(near), known(near))}
		}
	}
	if client == nil || client.role != hostRole || client == node {
		return nil, nil, &qdisc.FieldError{Field: path + ".client", Value: t.Client, Want: "another node of the lab: " + known(l.hosts())}
	}
	return node, client, nil
}

func (l *layout) hosts() map[string]bool {
	hosts := map[string]bool{}
	for _, s := range l.spots {
		if s.role == hostRole {
			hosts[s.name] = true
		}
	}
	return hosts
}

// flows are the packets that go to a target's node, to whichever of its addresses, those
// first that its clients reach.
func (l *layout) flows(t TargetDefinition, node *spot, reached []netip.Addr) ([]target.Flow, error) {
	const tcp, udp = 6, 17
	path := "targets." + t.Name
	protocols, ports := []uint8{t.Protocol}, t.Ports
	switch {
	case len(ports) > 0 && t.Protocol == 0:
		protocols = []uint8{tcp, udp}
	case len(ports) > 0 && !target.HasPorts(t.Protocol):
		return nil, &qdisc.FieldError{Field: path + ".protocol", Value: target.ProtocolName(t.Protocol), Want: "tcp, udp or another protocol that has ports, beside a port"}
	case len(ports) == 0:
		ports = []target.Ports{{}}
	}
	for _, p := range t.Ports {
		if p.First == 0 || p.First > p.Last {
			return nil, &qdisc.FieldError{Field: path + ".port", Value: p.String(), Want: "a port from 1 to 65535 or a range of them, such as 5432 or 8000-8100"}
		}
	}
	addresses := slices.Clone(reached)
	for _, d := range node.devices {
		for _, a := range d.addresses {
			if !slices.Contains(addresses, a) {
				addresses = append(addresses, a)
			}
		}
	}
	if n := len(addresses) * len(protocols) * len(ports); n > target.MaxFlows {
		return nil, &qdisc.FieldError{Field: path + ".port", Value: portsText(t.Ports), Want: fmt.Sprintf("fewer ports, or a protocol: %d flows are too many, %d may be (each address of the node counts for each port and protocol)", n, target.MaxFlows)}
	}
	var flows []target.Flow
	for _, a := range addresses {
		for _, protocol := range protocols {
			for _, p := range ports {
				flows = append(flows, target.Flow{Protocol: protocol, Destination: host(a), DestinationPorts: p})
			}
		}
	}
	return flows, nil
}

// crossing is a link in a direction, by the names of its ends.
type crossing struct {
	link     int
	from, to string
}

func (c crossing) back() crossing { return crossing{c.link, c.to, c.from} }

// way returns the links on the shortest way between two hosts, in order.
func (l *layout) way(from, to *spot) ([]crossing, bool) {
	before := map[*spot][]crossing{from: nil}
	came := map[*spot]*spot{}
	queue := []*spot{from}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s == to {
			var way []crossing
			for ; s != from; s = came[s] {
				way = append(slices.Clone(before[s]), way...)
			}
			return way, true
		}
		if s != from && !s.node.Forward {
			continue
		}
		for k, n := range s.networks {
			for _, m := range n.members {
				if _, seen := before[m.spot]; seen {
					continue
				}
				before[m.spot], came[m.spot] = n.cross(s, s.devices[k].link, m), s
				queue = append(queue, m.spot)
			}
		}
	}
	return nil, false
}

// cross returns the links from s, by its link, to another member of the network.
func (n *network) cross(s *spot, link int, m *member) []crossing {
	if n.at == nil {
		return []crossing{{link, s.name, m.spot.name}}
	}
	return []crossing{{link, s.name, n.at.name}, {m.link, n.at.name, m.spot.name}}
}

// onLink finds the link that a target names, and the direction that leads to the node.
func (l *layout) onLink(t TargetDefinition, node *spot, way []crossing) (crossing, error) {
	ends := func(a, b string) bool { return t.Link == a+"-"+b || t.Link == b+"-"+a }
	for _, c := range slices.Backward(way) {
		if ends(c.from, c.to) {
			return c, nil
		}
	}
	for i, link := range l.definition.Links {
		if !ends(link.A, link.B) {
			continue
		}
		switch node.name {
		case link.A:
			return crossing{i, link.B, link.A}, nil
		case link.B:
			return crossing{i, link.A, link.B}, nil
		}
	}
	names := make([]string, len(way))
	for i, c := range way {
		names[i] = c.from + "-" + c.to
	}
	return crossing{}, &qdisc.FieldError{Field: "targets." + t.Name + ".link", Value: t.Link, Want: fmt.Sprintf("a link of node %s, or one on the way to it: %s", node.name, strings.Join(names, ", "))}
}

// place is where packets leave that cross the link: the wire's device that faces where they
// go, or the other end's own device where there is no wire.
func (l *layout) place(c crossing) target.Place {
	chain := l.chains[c.link]
	out := chain[0]
	if l.definition.Links[c.link].A != c.from {
		out = chain[len(chain)-1]
	}
	for _, d := range chain {
		if d.spot.role == wireRole && d.toward == c.to {
			out = d
		}
	}
	return l.at(out)
}

// at is the egress of a device of the lab.
func (l *layout) at(d *device) target.Place {
	return target.Place{Namespace: l.definition.Namespace(d.spot.name), Device: d.name, Hook: target.Egress, Owned: true}
}
