package ebpf

import "encoding/binary"

// What virtio_net_hdr says of a super-packet (linux/virtio_net.h).
const (
	vnetHeaderLen = 2
	vnetGSOSize   = 4

	vnetTCP4 = 1    // VIRTIO_NET_HDR_GSO_TCPV4
	vnetTCP6 = 4    // VIRTIO_NET_HDR_GSO_TCPV6
	vnetECN  = 0x80 // VIRTIO_NET_HDR_GSO_ECN
)

// TCP's flags that only the first or the last segment of a super-packet keeps.
const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// super is where things are in a super-packet of TCP: segments that segmentation
// offload left uncut. The model sees the segments; those that leave together stay
// together.
type super struct {
	frame []byte // with virtio_net_hdr
	// ip, tcp and data are offsets of headers and payload.
	ip, tcp, data int
	// mss is the payload of each segment but the last.
	mss, count int
}

// superOf takes a frame, with its virtio_net_hdr, apart. It is not ok for what is not a
// super-packet.
func superOf(frame []byte) (s super, ok bool) {
	kind := frame[vnetGSOType] &^ vnetECN
	if kind != vnetTCP4 && kind != vnetTCP6 || frame[vnetFlags]&vnetNeedsCsum == 0 {
		return super{}, false
	}
	ip := ipHeader(frame[vnetHeader:])
	s = super{
		frame: frame, ip: len(frame) - len(ip),
		tcp: vnetHeader + int(binary.NativeEndian.Uint16(frame[vnetCsumStart:])),
		mss: int(binary.NativeEndian.Uint16(frame[vnetGSOSize:])),
	}
	if ip == nil || s.mss == 0 || s.tcp < s.ip+20 || len(frame) < s.tcp+20 || (kind == vnetTCP4) != (ip[0]>>4 == 4) {
		return super{}, false
	}
	s.data = s.tcp + int(frame[s.tcp+12]>>4)*4
	if s.data >= len(frame) {
		return super{}, false
	}
	s.count = (len(frame) - s.data + s.mss - 1) / s.mss
	return s, true
}

// span is where the payload of segments first to end-1 lies.
func (s *super) span(first, end int) (from, to int) {
	return s.data + first*s.mss, min(s.data+end*s.mss, len(s.frame))
}

// size is the length of the segments first to end-1 as one frame, without
// virtio_net_hdr.
func (s *super) size(first, end int) int {
	from, to := s.span(first, end)
	return s.data - vnetHeader + to - from
}

// cut writes the segments first to end-1 to b, which has size bytes and those of
// virtio_net_hdr, as segmentation offload would (tcp_gso_segment and inet_gso_segment,
// net/ipv4): one frame, or a smaller super-packet.
func (s *super) cut(b []byte, first, end int) {
	from, to := s.span(first, end)
	copy(b, s.frame[:s.data])
	copy(b[s.data:], s.frame[from:to])
	if end-first == 1 {
		b[vnetGSOType] = 0
		clear(b[vnetHeaderLen:vnetCsumStart])
	}

	ip := b[s.ip:]
	if ip[0]>>4 == 4 {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(first))
		clear(ip[10:12])
		binary.BigEndian.PutUint16(ip[10:], checksum(ip[:min(int(ip[0]&0xf)*4, s.tcp-s.ip)]))
	} else {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
	}

	tcp := b[s.tcp:]
	binary.BigEndian.PutUint32(tcp[4:], binary.BigEndian.Uint32(tcp[4:])+uint32(first*s.mss))
	if end < s.count {
		tcp[13] &^= tcpFIN | tcpPSH
	}
	if first > 0 {
		tcp[13] &^= tcpCWR
		b[vnetGSOType] &^= vnetECN
	}
	// The open checksum's field holds the sum of the pseudo header, which has the
	// length (RFC 1624).
	sum := uint32(binary.BigEndian.Uint16(tcp[16:])) + uint32(^uint16(len(s.frame)-s.tcp)) + uint32(len(tcp))
	sum = sum>>16 + sum&0xffff
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(tcp[16:], uint16(sum))
}

// segmentsOf is how many packets of the wire a frame, with its virtio_net_hdr, stands for.
func segmentsOf(frame []byte) int {
	if s, ok := superOf(frame); ok {
		return s.count
	}
	return 1
}
