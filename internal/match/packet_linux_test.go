package match

import (
	"encoding/binary"
	"net/netip"

	"netemd/internal/ether"
)

// frame makes packets of every kind, also of kinds that no stack sends.
type frame struct {
	// tags are the EtherTypes of the VLAN tags, the outer one first.
	tags []uint16
	// kind is the EtherType behind them; 0 is that of the addresses.
	kind                uint16
	source, destination netip.Addr
	// protocol is that of payload; extensions are the IPv6 headers before it.
	protocol   uint8
	extensions []extension
	// options are IPv4 options, in 4 bytes each.
	options int
	// fragment is the offset of an IPv4 packet, in 8 bytes, and more its flag.
	fragment uint16
	more     bool
	payload  []byte
	// bare leaves the Ethernet header away.
	bare bool
	// cut is how many bytes are missing at the end.
	cut int
}

// extension is one IPv6 extension header.
type extension struct {
	number uint8
	// words is its length beyond 8 bytes, in 8 bytes.
	words uint8
	// fragment is the offset of a fragment header, in 8 bytes.
	fragment uint16
}

func ports(source, destination uint16) []byte {
	b := make([]byte, 8)
	binary.BigEndian.PutUint16(b, source)
	binary.BigEndian.PutUint16(b[2:], destination)
	return b
}

func (f frame) bytes() []byte {
	var b []byte
	kind := f.kind
	if kind == 0 {
		kind = ether.IPv4
		if f.source.Is6() {
			kind = ether.IPv6
		}
	}
	if !f.bare {
		b = append(b, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1)
		for _, t := range f.tags {
			b = binary.BigEndian.AppendUint16(b, t)
			b = append(b, 0, 7)
		}
		b = binary.BigEndian.AppendUint16(b, kind)
	}
	switch {
	case f.source.Is4():
		b = f.ipv4(b)
	case f.source.Is6():
		b = f.ipv6(b)
	}
	b = append(b, f.payload...)
	return b[:max(0, len(b)-f.cut)]
}

func (f frame) ipv4(b []byte) []byte {
	flags := f.fragment
	if f.more {
		flags |= 0x2000
	}
	b = append(b, 0x45+byte(f.options), 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+4*f.options+len(f.payload)))
	b = binary.BigEndian.AppendUint16(b, 1)
	b = binary.BigEndian.AppendUint16(b, flags)
	b = append(b, 64, f.protocol, 0, 0)
	b = append(append(b, f.source.AsSlice()...), f.destination.AsSlice()...)
	return append(b, make([]byte, 4*f.options)...)
}

func (f frame) ipv6(b []byte) []byte {
	var ext []byte
	for i, e := range f.extensions {
		next := f.protocol
		if i+1 < len(f.extensions) {
			next = f.extensions[i+1].number
		}
		h := make([]byte, 8+8*int(e.words))
		h[0], h[1] = next, e.words
		if e.number == protoFragment {
			h = h[:8]
			h[1] = 0
			binary.BigEndian.PutUint16(h[2:], e.fragment<<3|1)
		}
		ext = append(ext, h...)
	}
	next := f.protocol
	if len(f.extensions) > 0 {
		next = f.extensions[0].number
	}
	b = append(b, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(ext)+len(f.payload)))
	b = append(b, next, 64)
	b = append(append(b, f.source.AsSlice()...), f.destination.AsSlice()...)
	return append(b, ext...)
}
