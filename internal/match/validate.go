package match

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"netemd/internal/target"
)

// MaxFlows bounds the flows of a match, included and excluded ones together.
const MaxFlows = 64

// Validate returns everything that is wrong with m, each error beginning with the
// field: "include[0].source_ports: ...".
func Validate(m target.Match) error {
	var errs []error
	refuse := func(field, format string, a ...any) {
		errs = append(errs, fmt.Errorf(field+": "+format, a...))
	}
	if n := len(m.Include) + len(m.Exclude); n > MaxFlows {
		refuse("flows", "%d, want at most %d, included and excluded ones together", n, MaxFlows)
	}
	if m.Control && len(m.Include) > 0 {
		refuse("control", "ARP and neighbour discovery go with all packets only, not with chosen flows")
	}
	for i, f := range m.Include {
		errs = append(errs, validateFlow(fmt.Sprintf("include[%d]", i), f)...)
	}
	for i, f := range m.Exclude {
		field := fmt.Sprintf("exclude[%d]", i)
		if f == (target.Flow{}) {
			refuse(field, "a flow of all packets leaves nothing")
		}
		errs = append(errs, validateFlow(field, f)...)
	}
	if len(errs) == 0 && nothing(m) {
		refuse("exclude", "nothing is left of what is included")
	}
	return errors.Join(errs...)
}

// nothing reports whether whole families are excluded and no other is included.
func nothing(m target.Match) bool {
	if everything(m) {
		return false
	}
	m.Include, m.Exclude = normal(m.Include), normal(m.Exclude)
	for _, family := range []int{4, 6} {
		if len(ofFamily(m.Include, family)) > 0 && !slices.ContainsFunc(ofFamily(m.Exclude, family), whole) {
			return false
		}
	}
	return true
}

func validateFlow(field string, f target.Flow) []error {
	var errs []error
	refuse := func(name, format string, a ...any) {
		errs = append(errs, fmt.Errorf(field+name+": "+format, a...))
	}
	families := map[bool]netip.Prefix{}
	for _, end := range []struct {
		name   string
		prefix netip.Prefix
		ports  target.Ports
	}{
		{"source", f.Source, f.SourcePorts},
		{"destination", f.Destination, f.DestinationPorts},
	} {
		switch p := unmap(end.prefix); {
		case p.IsValid():
			families[p.Addr().Is4()] = end.prefix
		case p != (netip.Prefix{}):
			refuse("."+end.name, "%s with an impossible prefix length", p.Addr())
		}
		switch p := end.ports; {
		case p.Any():
			continue
		case p.First == 0:
			refuse("."+end.name+"_ports", "%d-%d: port 0 is no port", p.First, p.Last)
		case p.First > p.Last:
			refuse("."+end.name+"_ports", "%d-%d: the first is above the last", p.First, p.Last)
		}
		if f.Protocol != 0 && !hasPorts(f.Protocol) {
			refuse("."+end.name+"_ports", "protocol %d has no ports", f.Protocol)
		}
	}
	if len(families) == 2 {
		refuse("", "source %s and destination %s are of different families", f.Source, f.Destination)
	}
	switch {
	case !flagged(f):
	case f.Protocol != protoTCP:
		refuse(".flags", "protocol %d has no TCP flags", f.Protocol)
	case f.FlagsSet&f.FlagsClear != 0:
		refuse(".flags", "%s cannot be set and clear", target.FlagsText(f.FlagsSet&f.FlagsClear, 0))
	}
	for _, c := range []target.Cgroup{f.SourceCgroup, f.DestinationCgroup} {
		if c != (target.Cgroup{}) && (c.ID == 0 || c.Level < 1 || c.Level > maxLevel) {
			refuse(".cgroup", "%q with id %d at level %d, want one below the root that exists", c.Path, c.ID, c.Level)
		}
	}
	if !f.DestinationCgroup.Any() && f.Protocol != 0 && f.Protocol != protoTCP && f.Protocol != protoUDP {
		refuse(".destination_cgroup", "protocol %d: whose socket a packet is for can be told of TCP and UDP only", f.Protocol)
	}
	if f.Protocol != 0 && walked(f.Protocol) {
		refuse(".protocol", "%d is an IPv6 extension header, want what it carries", f.Protocol)
	}
	return errs
}
