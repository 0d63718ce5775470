package match

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"netemd/internal/ether"
	"netemd/internal/target"
)

// Selects reports whether m selects a packet. It begins at the link layer, whose
// header is header bytes long: 14 for Ethernet, whose EtherType says what follows, 0
// for none, where IP's own version does. m must be valid. Where it selects by cgroups, the
// packet is one of no socket.
func Selects(m target.Match, packet []byte, header int) bool {
	return Ends{}.Selects(m, packet, header)
}

// Ends are the cgroups of the sockets of a packet, each with those above it: the ids by
// their levels, from the root. Empty is no socket.
type Ends struct{ Sender, Receiver []uint64 }

// Selects is the function Selects for a packet between e.
func (e Ends) Selects(m target.Match, packet []byte, header int) bool {
	c := read(packet, header)
	c.ends = e
	if c.control && !m.Control {
		return false
	}
	taken := func(f target.Flow) bool { return c.belongs(f) }
	return !slices.ContainsFunc(normal(m.Exclude), taken) &&
		(len(m.Include) == 0 || slices.ContainsFunc(normal(m.Include), taken))
}

// content is what a packet carries.
type content struct {
	// control says that it is ARP or neighbour discovery.
	control bool
	// source and destination are not valid unless it is IP.
	source, destination netip.Addr
	// protocol is unread where it cannot be read.
	protocol                    int
	sourcePort, destinationPort int
	// flags are those of a TCP header, noFlags where there is none.
	flags int
	// ends are the sockets, which the packet itself does not tell.
	ends Ends
}

func (c *content) belongs(f target.Flow) bool {
	address := func(p netip.Prefix, a netip.Addr) bool { return !p.IsValid() || p.Contains(a) }
	port := func(p target.Ports, n int) bool { return p.Any() || int(p.First) <= n && n <= int(p.Last) }
	return c.sentBy(f.SourceCgroup) && c.isFor(f.DestinationCgroup) && address(f.Source, c.source) && address(f.Destination, c.destination) &&
		(f.Protocol == 0 || int(f.Protocol) == c.protocol) &&
		port(f.SourcePorts, c.sourcePort) && port(f.DestinationPorts, c.destinationPort) &&
		(!flagged(f) || c.flags&(int(f.FlagsSet|f.FlagsClear)|noFlags) == int(f.FlagsSet))
}

func read(packet []byte, header int) content {
	c := content{protocol: unread, sourcePort: noPorts, destinationPort: noPorts, flags: noFlags}
	if len(packet) < header {
		return c
	}
	kind, ip := ether.Type(packet, header)
	switch {
	case kind == ether.ARP:
		c.control = true
	case kind == ether.IPv4 && len(ip) >= 20:
		c.readIPv4(ip)
	case kind == ether.IPv6 && len(ip) >= 40:
		c.readIPv6(ip)
	}
	return c
}

func (c *content) readIPv4(ip []byte) {
	c.source, _ = netip.AddrFromSlice(ip[12:16])
	c.destination, _ = netip.AddrFromSlice(ip[16:20])
	c.protocol = int(ip[9])
	if first := binary.BigEndian.Uint16(ip[6:])&0x1fff == 0; first {
		c.readPorts(ip, int(ip[0]&0x0f)*4)
	}
}

func (c *content) readIPv6(ip []byte) {
	c.source, _ = netip.AddrFromSlice(ip[8:24])
	c.destination, _ = netip.AddrFromSlice(ip[24:40])
	next, at := ip[6], 40
	if next == protoICMPv6 && len(ip) > at && ip[at] >= discoverFirst && ip[at] <= discoverLast {
		c.control = true
	}
	for range ether.Extensions {
		if !walked(next) {
			break
		}
		if len(ip) < at+8 {
			return
		}
		ext := ip[at:]
		length := 8
		if next != protoFragment {
			length = (int(ext[1]) + 1) * 8
		} else if binary.BigEndian.Uint16(ext[2:])&0xfff8 != 0 {
			// What follows in a later fragment is no header.
			c.protocol = int(ext[0])
			return
		}
		next, at = ext[0], at+length
	}
	c.protocol = int(next)
	c.readPorts(ip, at)
}

func (c *content) readPorts(ip []byte, at int) {
	if hasPorts(uint8(c.protocol)) && len(ip) >= at+4 {
		c.sourcePort = int(binary.BigEndian.Uint16(ip[at:]))
		c.destinationPort = int(binary.BigEndian.Uint16(ip[at+2:]))
	}
	if c.protocol == protoTCP && len(ip) > at+flagsAt {
		c.flags = int(ip[at+flagsAt])
	}
}
