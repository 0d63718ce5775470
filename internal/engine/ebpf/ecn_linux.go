package ebpf

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The two bits of ECN (RFC 3168): a sender that takes part sets one of them, and who
// is congested both.
const congested = 0x03

// ipHeader is the IP header of an Ethernet frame, behind up to two tags; nil without
// a whole one.
func ipHeader(frame []byte) []byte {
	at := 12
	for range 3 {
		if len(frame) < at+2 {
			return nil
		}
		kind, ip := binary.BigEndian.Uint16(frame[at:]), frame[at+2:]
		switch {
		case kind == unix.ETH_P_IP && len(ip) >= 20, kind == unix.ETH_P_IPV6 && len(ip) >= 40:
			return ip
		case kind != unix.ETH_P_8021Q && kind != unix.ETH_P_8021AD:
			return nil
		}
		at += 4
	}
	return nil
}

// carriesECN reports whether a frame's sender takes part in ECN.
func carriesECN(frame []byte) bool {
	ip := ipHeader(frame)
	switch {
	case ip == nil:
		return false
	case ip[0]>>4 == 4:
		return ip[1]&congested != 0
	}
	return ip[1]>>4&congested != 0
}

// mark says in a frame that carries ECN that there is congestion.
func mark(frame []byte) {
	ip := ipHeader(frame)
	if ip == nil {
		return
	}
	if ip[0]>>4 != 4 {
		ip[1] |= congested << 4
		return
	}
	before := binary.BigEndian.Uint16(ip)
	ip[1] |= congested
	// RFC 1624: HC' = ~(~HC + ~m + m').
	sum := uint32(^binary.BigEndian.Uint16(ip[10:])) + uint32(^before) + uint32(binary.BigEndian.Uint16(ip))
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
}
