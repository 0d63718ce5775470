// Package ether reads the link layer of a packet, as the engines' programs in the
// kernel do.
package ether

import "encoding/binary"

// EtherTypes (linux/if_ether.h).
const (
	IPv4   = 0x0800
	ARP    = 0x0806
	VLAN   = 0x8100
	IPv6   = 0x86dd
	VLANAD = 0x88a8
)

const (
	// Tags is how many VLAN tags in the data are walked over.
	Tags = 2
	// Extensions is how many IPv6 extension headers are.
	Extensions = 4
	// Header is the length of Ethernet's header.
	Header = 14
)

// Type is what the link layer carries, behind its tags, and that; 0 when the
// packet ends before. header is the length of the link layer's header, 0 for none: then
// the IP version says it.
func Type(packet []byte, header int) (kind uint16, rest []byte) {
	if len(packet) < header {
		return 0, nil
	}
	rest = packet[header:]
	if header < Header {
		if len(rest) > 0 {
			switch rest[0] >> 4 {
			case 4:
				return IPv4, rest
			case 6:
				return IPv6, rest
			}
		}
		return 0, rest
	}
	kind = binary.BigEndian.Uint16(packet[header-2:])
	for range Tags {
		if kind != VLAN && kind != VLANAD {
			break
		}
		if len(rest) < 4 {
			return 0, nil
		}
		kind, rest = binary.BigEndian.Uint16(rest[2:]), rest[4:]
	}
	return kind, rest
}
