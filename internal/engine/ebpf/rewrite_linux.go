package ebpf

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// transport finds the header of TCP or UDP in a packet of IP, and nil where there is none:
// in other protocols, fragments behind the first, and behind extension headers.
func transport(ip []byte) (protocol uint8, header []byte) {
	if ip[0]>>4 == 4 {
		if binary.BigEndian.Uint16(ip[6:])&0x1fff != 0 {
			return 0, nil
		}
		protocol, header = ip[9], ip[min(len(ip), int(ip[0]&0xf)*4):]
	} else {
		protocol, header = ip[6], ip[40:]
	}
	switch {
	case protocol == unix.IPPROTO_TCP && len(header) >= 20:
	case protocol == unix.IPPROTO_UDP && len(header) >= 8:
	default:
		return 0, nil
	}
	return protocol, header
}

// flowOf is the flow of a packet of IP, not ok where transport finds nothing.
func flowOf(ip []byte) (k flowKey, ok bool) {
	protocol, h := transport(ip)
	if h == nil {
		return flowKey{}, false
	}
	source, destination := addressesOf(ip)
	from, _ := netip.AddrFromSlice(source)
	to, _ := netip.AddrFromSlice(destination)
	return flowKey{
		protocol,
		netip.AddrPortFrom(from, binary.BigEndian.Uint16(h)),
		netip.AddrPortFrom(to, binary.BigEndian.Uint16(h[2:])),
	}, true
}

func addressesOf(ip []byte) (source, destination []byte) {
	if ip[0]>>4 == 4 {
		return ip[12:16], ip[16:20]
	}
	return ip[8:24], ip[24:40]
}

// rewrite makes of a packet, whose transport checksum is not open, one of flow k, of the
// same protocol and version of IP. The checksum of IPv4's header is left to the raw
// socket, which puts it in any case (raw_send_hdrinc in net/ipv4/raw.c).
func rewrite(ip []byte, k flowKey) {
	protocol, h := transport(ip)
	sum := h[16:18]
	if protocol == unix.IPPROTO_UDP {
		sum = h[6:8]
	}
	none := protocol == unix.IPPROTO_UDP && sum[0] == 0 && sum[1] == 0
	// RFC 1624: HC' = ~(~HC + ~m + m')
	total := uint32(^binary.BigEndian.Uint16(sum))
	put := func(field, value []byte) {
		for i := 0; i < len(field); i += 2 {
			total += uint32(^binary.BigEndian.Uint16(field[i:])) + uint32(binary.BigEndian.Uint16(value[i:]))
		}
		copy(field, value)
	}
	source, destination := addressesOf(ip)
	put(source, k.source.Addr().AsSlice())
	put(destination, k.destination.Addr().AsSlice())
	put(h[0:2], binary.BigEndian.AppendUint16(nil, k.source.Port()))
	put(h[2:4], binary.BigEndian.AppendUint16(nil, k.destination.Port()))
	if none {
		return
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	value := ^uint16(total)
	if value == 0 && protocol == unix.IPPROTO_UDP {
		value = 0xffff
	}
	binary.BigEndian.PutUint16(sum, value)
}
