package verify

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

const (
	linkHeader   = 14
	ipv4Header   = 20
	ipv6Header   = 40
	hopLimit     = 64
	labelSize    = 16
	magicNumber  = 0x6e746d76 // first in each label, changed by the run
	ect0, ce     = 2, 3       // RFC 3168
	ecnBits      = 3
	udpHeader    = 8
	tcpHeader    = 20
	sctpHeader   = 12
	dccpHeader   = 16
	icmpHeader   = 8
	defaultSize  = 256
	corruptSize  = 1000
	smallestRate = 96
)

// packet is what numbered packets of one run are made by: an IP packet of size bytes
// with a transport header whose checksum is wrong, and a payload that is labelled
// twice, so that one flipped bit never hides the number.
type packet struct {
	flow flow
	size int
	run  uint32
	// ecn is the ECN field of the IP header.
	ecn uint8
}

// minSize is the smallest packet of a flow.
func minSize(f flow) int { return ipHeader(f) + transportHeader(f.protocol) + 2*labelSize }

func ipHeader(f flow) int {
	if f.to.Addr().Is4() {
		return ipv4Header
	}
	return ipv6Header
}

func transportHeader(protocol uint8) int {
	switch protocol {
	case protoTCP:
		return tcpHeader
	case protoUDP:
		return udpHeader
	case protoSCTP:
		return sctpHeader
	case protoDCCP:
		return dccpHeader
	case protoICMP, protoICMPv6:
		return icmpHeader
	}
	if hasPorts(protocol) {
		return udpHeader
	}
	return 0
}

// magic is what both labels begin with.
func (p packet) magic() uint32 { return magicNumber ^ p.run*0x9e3779b1 }

// labels are where in the IP packet they begin.
func (p packet) labels() (first, second int) {
	return ipHeader(p.flow) + transportHeader(p.flow.protocol), p.size - labelSize
}

// bytes is the packet of that number.
func (p packet) bytes(number uint32) []byte {
	b := make([]byte, p.size)
	p.fill(b, number)
	return b
}

// fill writes the packet of that number into b, of p.size bytes.
func (p packet) fill(b []byte, number uint32) {
	head := ipHeader(p.flow)
	if head == ipv4Header {
		p.ipv4(b, number)
	} else {
		p.ipv6(b)
	}
	p.transport(b[head:], number)
	first, second := p.labels()
	random := uint64(p.run)<<32 | uint64(number)
	for i := first; i < len(b); i += 8 {
		random += 0x9e3779b97f4a7c15 // splitmix64
		z := (random ^ random>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		var word [8]byte
		binary.BigEndian.PutUint64(word[:], z^z>>31)
		copy(b[i:], word[:])
	}
	for _, at := range []int{first, second} {
		label := b[at : at+labelSize]
		binary.BigEndian.PutUint32(label, p.magic())
		binary.BigEndian.PutUint32(label[4:], p.run)
		binary.BigEndian.PutUint32(label[8:], number)
		binary.BigEndian.PutUint32(label[12:], crc32.ChecksumIEEE(label[:12]))
	}
	p.spoil(b)
}

func (p packet) ipv4(b []byte, number uint32) {
	b[0], b[1] = 0x45, p.ecn
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)))
	binary.BigEndian.PutUint16(b[4:], uint16(number%0xffff+1)) // the kernel would fill in 0
	b[6], b[7] = 0, 0
	b[8], b[9] = hopLimit, p.flow.protocol
	b[10], b[11] = 0, 0
	copy(b[12:], p.flow.from.Addr().AsSlice())
	copy(b[16:], p.flow.to.Addr().AsSlice())
	binary.BigEndian.PutUint16(b[10:], ^sum(b[:ipv4Header]))
}

func (p packet) ipv6(b []byte) {
	binary.BigEndian.PutUint32(b, 6<<28|uint32(p.ecn)<<20)
	binary.BigEndian.PutUint16(b[4:], uint16(len(b)-ipv6Header))
	b[6], b[7] = p.flow.protocol, hopLimit
	copy(b[8:], p.flow.from.Addr().AsSlice())
	copy(b[24:], p.flow.to.Addr().AsSlice())
}

// transport writes a header that its protocol's receiver drops without an answer:
// the checksum is wrong. Of UDP, whose sockets may look at it only when they are read,
// the length is wrong, too, which is looked at first.
func (p packet) transport(b []byte, number uint32) {
	header := b[:transportHeader(p.flow.protocol)]
	clear(header)
	if hasPorts(p.flow.protocol) {
		binary.BigEndian.PutUint16(header, p.flow.from.Port())
		binary.BigEndian.PutUint16(header[2:], p.flow.to.Port())
	}
	const echo, echo6 = 8, 128
	switch p.flow.protocol {
	case protoTCP:
		binary.BigEndian.PutUint32(header[4:], number)
		header[12], header[13] = tcpHeader/4<<4, p.flow.flags
		binary.BigEndian.PutUint16(header[14:], 1024)
	case protoUDP:
		binary.BigEndian.PutUint16(header[4:], 0xffff)
	case protoICMP:
		header[0] = echo
	case protoICMPv6:
		header[0] = echo6
	}
}

// spoil makes the checksum wrong for certain, by an amount that no single flipped bit
// makes up for: that is a power of two.
func (p packet) spoil(b []byte) {
	at, ok := map[uint8]int{protoTCP: 16, protoUDP: 6, protoICMP: 2, protoICMPv6: 2}[p.flow.protocol]
	if !ok {
		return // SCTP's and DCCP's stay 0, which is wrong but once in 2^32 and 2^16
	}
	head := ipHeader(p.flow)
	body := b[head:]
	body[at], body[at+1] = 0, 0
	total := uint32(sum(body))
	if p.flow.protocol != protoICMP {
		var length [4]byte
		binary.BigEndian.PutUint32(length[:], uint32(len(body)))
		total += uint32(sum(p.flow.from.Addr().AsSlice())) + uint32(sum(p.flow.to.Addr().AsSlice())) +
			uint32(sum(length[:])) + uint32(p.flow.protocol)
	}
	const off = 0x2a5b
	wrong := fold(uint32(^fold(total)) + off)
	if wrong == 0 {
		wrong = 0xffff // the same sum, but UDP takes 0 for none
	}
	binary.BigEndian.PutUint16(body[at:], wrong)
}

// sum is the Internet checksum's sum of b (RFC 1071).
func sum(b []byte) uint16 {
	total := uint32(0)
	for ; len(b) > 1; b = b[2:] {
		total += uint32(b[0])<<8 | uint32(b[1])
	}
	if len(b) == 1 {
		total += uint32(b[0]) << 8
	}
	return fold(total)
}

func fold(total uint32) uint16 {
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}

// number reads the number from the first label that is whole.
func (p packet) number(ip []byte) (number int, ok bool) {
	first, second := p.labels()
	for _, at := range []int{first, second} {
		if len(ip) < at+labelSize {
			continue
		}
		label := ip[at : at+labelSize]
		if binary.BigEndian.Uint32(label) == p.magic() && binary.BigEndian.Uint32(label[4:]) == p.run &&
			binary.BigEndian.Uint32(label[12:]) == crc32.ChecksumIEEE(label[:12]) {
			return int(binary.BigEndian.Uint32(label[8:])), true
		}
	}
	return 0, false
}

// compare says how a packet differs from the one sent, which is scratch: damaged in
// what no hop may change, marked by a router; way is what hops change alike for all.
func (p packet) compare(ip, scratch []byte) (damaged, marked bool, way byte) {
	if len(ip) != len(scratch) {
		return true, false, 0
	}
	if ipHeader(p.flow) == ipv4Header {
		way = ip[8]
		marked = ip[1]&ecnBits == ce && p.ecn == ect0
		scratch[8] = way
		if marked {
			scratch[1] |= ce
		}
		// The checksum follows the rest, and so tells whether a bit of it was flipped.
		damaged = sum(ip[:ipv4Header]) != 0xffff
		scratch[10], scratch[11] = ip[10], ip[11]
	} else {
		way = ip[7]
		scratch[7] = way
		marked = ip[1]>>4&ecnBits == ce && p.ecn == ect0
		if marked {
			scratch[1] |= ce << 4
		}
	}
	return damaged || !bytes.Equal(ip, scratch), marked, way
}
