package ebpf

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"netemd/internal/content"
)

// tell records segments first to end-1 of a frame, with its virtio_net_hdr, that a queue threw
// away at t, if somebody wants to know. What has no ports is counted as one that could not be.
func (l *loop) tell(t int64, frame []byte, first, end int) {
	d := l.drops
	if d == nil || !d.wanted.Load() {
		return
	}
	r, ok := recordOf(frame, first, end)
	if !ok {
		d.untold.Add(1)
		return
	}
	r.Time, r.Wall = t, wallAt(t)
	d.add(uint64(t), r)
}

// recordOf reads a frame as a content program does: TCP or UDP right behind IP's own header, and
// no fragment.
func recordOf(frame []byte, first, end int) (r content.Record, ok bool) {
	ip := ipHeader(frame[vnetHeader:])
	if ip == nil {
		return r, false
	}
	var from, to netip.Addr
	header, length := 40, 0
	if ip[0]>>4 == 4 {
		header, length = int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:]))
		if binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 || header < 20 { // a fragment
			return r, false
		}
		r.Protocol = ip[9]
		from, to = netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))
	} else {
		length = 40 + int(binary.BigEndian.Uint16(ip[4:]))
		r.Protocol = ip[6]
		from, to = netip.AddrFrom16([16]byte(ip[8:])), netip.AddrFrom16([16]byte(ip[24:]))
	}
	if length < header || length > len(ip) {
		return r, false
	}
	l4 := ip[header:length]
	behind := 8
	switch {
	case r.Protocol == unix.IPPROTO_UDP && len(l4) >= 8:
	case r.Protocol == unix.IPPROTO_TCP && len(l4) >= 20:
		behind = int(l4[12]>>4) * 4
		r.Flags, r.Sequence = l4[13], binary.BigEndian.Uint32(l4[4:])
	default:
		return r, false
	}
	if behind > len(l4) {
		return r, false
	}
	r.Source = netip.AddrPortFrom(from, binary.BigEndian.Uint16(l4)).String()
	r.Destination = netip.AddrPortFrom(to, binary.BigEndian.Uint16(l4[2:])).String()
	r.Payload, r.Length, r.Segments = uint32(len(l4)-behind), uint32(length), uint32(end-first)
	if s, many := superOf(frame); many {
		at, until := s.span(first, end)
		r.Sequence += uint32(at - s.data)
		r.Payload, r.Length = uint32(until-at), uint32(header+behind+until-at)
	}
	return r, true
}
