package target

import "net/netip"

// Overlaps reports whether a packet can belong to both m and other, as far as their
// words tell: it never says no where one can.
func (m Match) Overlaps(other Match) bool {
	if m.Control && other.Control {
		return true // ARP belongs to both, whatever is excluded
	}
	for _, a := range orAny(m.Include) {
		for _, b := range orAny(other.Include) {
			both, ok := a.intersect(b)
			if ok && !excluded(both, m.Exclude) && !excluded(both, other.Exclude) {
				return true
			}
		}
	}
	return false
}

// excluded reports whether one of the exclusions takes all of f away.
func excluded(f Flow, exclusions []Flow) bool {
	for _, e := range exclusions {
		if e.covers(f) {
			return true
		}
	}
	return false
}

// intersect returns the flow of the packets that belong to f and g; false when there
// are none.
func (f Flow) intersect(g Flow) (Flow, bool) {
	both := f
	if both.Protocol == 0 {
		both.Protocol = g.Protocol
	}
	if g.Protocol != 0 && g.Protocol != both.Protocol {
		return Flow{}, false
	}
	var ok [6]bool
	both.Source, ok[0] = narrower(f.Source, g.Source)
	both.Destination, ok[1] = narrower(f.Destination, g.Destination)
	both.SourcePorts, ok[2] = f.SourcePorts.intersect(g.SourcePorts)
	both.DestinationPorts, ok[3] = f.DestinationPorts.intersect(g.DestinationPorts)
	both.SourceCgroup, ok[4] = f.SourceCgroup.Within(g.SourceCgroup)
	both.DestinationCgroup, ok[5] = f.DestinationCgroup.Within(g.DestinationCgroup)
	both.FlagsSet, both.FlagsClear = f.FlagsSet|g.FlagsSet, f.FlagsClear|g.FlagsClear
	if ok != [6]bool{true, true, true, true, true, true} || both.FlagsSet&both.FlagsClear != 0 {
		return Flow{}, false
	}
	if _, same := family(both.Source, both.Destination); !same {
		return Flow{}, false
	}
	ports := !both.SourcePorts.Any() || !both.DestinationPorts.Any()
	return both, !ports || both.Protocol == 0 || hasPorts(both.Protocol)
}

func narrower(p, q netip.Prefix) (netip.Prefix, bool) {
	p, q = unmap(p), unmap(q)
	switch {
	case !p.IsValid():
		return q, true
	case !q.IsValid():
		return p, true
	case !p.Overlaps(q):
		return netip.Prefix{}, false
	case p.Bits() > q.Bits():
		return p, true
	}
	return q, true
}

func (p Ports) intersect(q Ports) (Ports, bool) {
	switch {
	case p.Any():
		return q, true
	case q.Any():
		return p, true
	}
	both := Ports{max(p.First, q.First), min(p.Last, q.Last)}
	return both, both.First <= both.Last
}

// covers reports whether every packet of g belongs to f.
func (f Flow) covers(g Flow) bool {
	of, _ := family(g.Source, g.Destination)
	contains := func(p, q netip.Prefix) bool {
		p, q = unmap(p), unmap(q)
		switch {
		case !p.IsValid():
			return true
		case !q.IsValid(): // any address, of the family that the other end says
			need, _ := family(p)
			return p.Bits() == 0 && need == of
		}
		return p.Bits() <= q.Bits() && p.Overlaps(q)
	}
	within := func(p, q Ports) bool {
		return p.Any() || !q.Any() && p.First <= q.First && q.Last <= p.Last
	}
	member := func(c, d Cgroup) bool { return c.Any() || !d.Any() && c.Above(d) }
	return (f.Protocol == 0 || f.Protocol == g.Protocol) && f.FlagsSet&^g.FlagsSet == 0 && f.FlagsClear&^g.FlagsClear == 0 &&
		contains(f.Source, g.Source) && contains(f.Destination, g.Destination) &&
		member(f.SourceCgroup, g.SourceCgroup) && member(f.DestinationCgroup, g.DestinationCgroup) &&
		within(f.SourcePorts, g.SourcePorts) && within(f.DestinationPorts, g.DestinationPorts)
}

// Mirrors reports whether other selects the answers to what m selects, and the two
// are told apart although both are seen at one hook, as on a loopback device: by the
// ports, where only one end's are said and clients have others, by a cgroup at one end,
// or by ends that have nothing in common. Only a socket whose peer has a port of the same
// Include, or is in the same cgroup, belongs to both.
func (m Match) Mirrors(other Match) bool {
	if m.Reverse().Key() != other.Key() || len(m.Include) == 0 {
		return false
	}
	served := func(said, open Ports, c, other Cgroup) bool {
		return said.served() && open.Any() || !c.Any() && other.Any()
	}
	sources, destinations := 0, 0
	for _, f := range m.Include {
		if served(f.SourcePorts, f.DestinationPorts, f.SourceCgroup, f.DestinationCgroup) {
			sources++
		}
		if served(f.DestinationPorts, f.SourcePorts, f.DestinationCgroup, f.SourceCgroup) {
			destinations++
		}
	}
	if all := len(m.Include); sources == all || destinations == all {
		return true
	}
	return !m.Overlaps(other)
}

// firstDrawn is the first port that hosts give to clients by themselves
// (ip_local_port_range in Documentation/networking/ip-sysctl.rst).
const firstDrawn = 32768

// served reports whether p are ports of servers: one that is said is, and a range is that
// no client's port is drawn from.
func (p Ports) served() bool { return !p.Any() && (p.First == p.Last || p.Last < firstDrawn) }
