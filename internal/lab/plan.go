package lab

import (
	"net/netip"

	"netemd/internal/target"
)

// Plan is what a lab consists of, as it will be made: nothing of it is looked up, so that
// it needs neither root nor Linux.
type Plan struct {
	// Namespaces are the nodes and switches in the definition's order, then the wires.
	Namespaces []PlannedNamespace
	// Links are in the definition's order.
	Links []PlannedLink
	// Targets are the definition's, with their places; Place.Index is 0.
	Targets []target.Target
}

// Role is what a namespace of a lab is for.
type Role string

// The roles.
const (
	RoleNode   Role = "node"
	RoleSwitch Role = "switch"
	RoleWire   Role = "wire"
	RoleBase   Role = "base"
)

// PlannedNamespace is one namespace.
type PlannedNamespace struct {
	// Name is that of the node, switch or wire; Namespace that below /run/netns.
	Name, Namespace string
	Role            Role
	// Forward says that it passes packets on by their addresses.
	Forward bool
	Devices []PlannedDevice
	// Routes are those of the usual table, of a node.
	Routes []PlannedRoute
}

// PlannedDevice is one end of a veth pair.
type PlannedDevice struct {
	Name string
	// Link is the number of its link, Toward the end of that which it leads to.
	Link   int
	Toward string
	// Addresses are as the kernel has them: of one host each, since routes say who else is on
	// the link.
	Addresses []netip.Prefix
}

// PlannedRoute is a route by a device; Via is not valid for what the device reaches itself.
type PlannedRoute struct {
	To     netip.Prefix
	Via    netip.Addr
	Device string
}

// PlannedLink is a link with the wires that it passes.
type PlannedLink struct {
	Link
	// Wire and Base are the names of the wires for faults and for the base impairment; empty
	// for none. Seen from A the wire comes first.
	Wire, Base string
	// Subnets are of the link, or of the switch that it ends at.
	Subnets []netip.Prefix
}

// Plan returns what the lab will consist of; the error is Validate's.
func (d Definition) Plan() (Plan, error) {
	l, err := d.layout()
	if err != nil {
		return Plan{}, err
	}
	var p Plan
	if p.Targets, err = l.targets(); err != nil {
		return Plan{}, err
	}
	for _, s := range l.spots {
		p.Namespaces = append(p.Namespaces, l.plan(s))
	}
	for i, link := range d.Links {
		planned := PlannedLink{Link: link, Subnets: l.networks[i].prefixes}
		for _, dev := range l.chains[i] {
			switch dev.spot.role {
			case wireRole:
				planned.Wire = dev.spot.name
			case baseRole:
				planned.Base = dev.spot.name
			}
		}
		p.Links = append(p.Links, planned)
	}
	return p, nil
}

func (l *layout) plan(s *spot) PlannedNamespace {
	out := PlannedNamespace{
		Name: s.name, Namespace: l.definition.Namespace(s.name), Forward: s.node.Forward,
		Role: map[role]Role{hostRole: RoleNode, switchRole: RoleSwitch, wireRole: RoleWire, baseRole: RoleBase}[s.role],
	}
	for _, d := range s.devices {
		dev := PlannedDevice{Name: d.name, Link: d.link, Toward: d.toward}
		for _, a := range d.addresses {
			dev.Addresses = append(dev.Addresses, host(a))
		}
		out.Devices = append(out.Devices, dev)
	}
	if s.role != hostRole {
		return out
	}
	for _, r := range s.routes {
		if r.table == 0 {
			out.Routes = append(out.Routes, PlannedRoute{To: r.to, Via: r.via, Device: r.device.name})
		}
	}
	return out
}
