package target

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Selector is a target without a name: a device and the traffic there, said from the
// device's side. Peers are what the traffic goes to in the direction "to" (egress)
// and what it comes from in the direction "from" (ingress; on a loopback device
// egress, too, since every packet passes it once).
type Selector struct {
	// Namespace is a name below /run/netns; empty is the agent's own.
	Namespace string
	Device    string
	// Protocol is the IP protocol number; 0 any.
	Protocol uint8
	// Peers and Locals are the two ends: addresses, prefixes ("192.0.2.0/24") or host
	// names, any of each. A host name stands for all its addresses of both families,
	// and is looked up again while a fault lasts.
	Peers, Locals []string
	// PeerPorts and LocalPorts are the ports of the two ends, any of each.
	PeerPorts, LocalPorts []Ports
	// ExcludePeers are left alone, in the forms of Peers; ExcludePorts are, at either
	// end.
	ExcludePeers []string
	ExcludePorts []Ports
	// FlagsSet and FlagsClear select TCP packets by their flags, as in Flow. They need
	// Protocol 6.
	FlagsSet, FlagsClear uint8
	// Cgroup narrows the local end to the processes of a group of cgroup v2, by a path below
	// the root, "/system.slice/pg.service", or the name of a systemd unit: on egress what they
	// send, on ingress what goes to them. Protocol is 0, TCP or UDP then.
	Cgroup string
	// Control also takes ARP and neighbour discovery; only for a whole device.
	Control bool
}

// Name is the device, with its namespace if it is not the agent's own: "v0@blue".
func (s Selector) Name() string {
	if s.Namespace == "" {
		return s.Device
	}
	return s.Device + "@" + s.Namespace
}

// String says the selector in one line, with the words of netemctl's flags:
// "v0@blue tcp dst 192.0.2.0/24 port 80,8000-8100". Equal selectors have equal
// strings.
func (s Selector) String() string {
	parts := []string{s.Name()}
	if s.Protocol != 0 {
		parts = append(parts, ProtocolName(s.Protocol))
	}
	if s.FlagsSet|s.FlagsClear != 0 {
		parts = append(parts, "flags "+FlagsText(s.FlagsSet, s.FlagsClear))
	}
	add := func(name string, values []string) {
		if len(values) > 0 {
			parts = append(parts, name+" "+strings.Join(values, ","))
		}
	}
	add("dst", s.Peers)
	add("port", portNames(s.PeerPorts))
	add("src", s.Locals)
	add("src-port", portNames(s.LocalPorts))
	add("exclude-dst", s.ExcludePeers)
	add("exclude-port", portNames(s.ExcludePorts))
	if s.Cgroup != "" {
		parts = append(parts, "cgroup "+s.Cgroup)
	}
	if s.Control {
		parts = append(parts, "with control packets")
	}
	return strings.Join(parts, " ")
}

func portNames(ps []Ports) []string {
	var names []string
	for _, p := range ps {
		names = append(names, p.String())
	}
	return names
}

// NeedsLookup reports whether s has a host name in it, so that Match depends on what
// the lookup says at the time.
func (s Selector) NeedsLookup() bool { return len(s.hosts()) > 0 }

// hosts are the host names in s, each once.
func (s Selector) hosts() []string {
	var hosts []string
	for _, end := range slices.Concat(s.Peers, s.Locals, s.ExcludePeers) {
		if _, err := parsePrefix(end); err != nil && !slices.Contains(hosts, end) {
			hosts = append(hosts, end)
		}
	}
	return hosts
}

// parsePrefix reads an address or a prefix. An address is the prefix of itself
// alone, and an IPv4 address that is mapped into IPv6 is an IPv4 one.
func parsePrefix(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, err
		}
		if a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("%s: an address without a zone", s)
		}
		return host(a), nil
	}
	p, err := netip.ParsePrefix(s)
	return unmap(p), err
}

// host is the prefix of one address.
func host(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen())
}

// unmap turns a prefix of IPv4-mapped addresses into an IPv4 one.
func unmap(p netip.Prefix) netip.Prefix {
	if p.IsValid() && p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}
