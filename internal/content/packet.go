package content

import (
	"bytes"
	"encoding/binary"
	"go/token"

	"netemd/internal/ether"
)

// Holds says whether c is true of a packet, which begins at the link layer whose header
// is header bytes long, 14 for Ethernet and 0 for none. It is what the kernel's program
// does, in Go.
func Holds(c Condition, frame []byte, header int) bool {
	p := read(frame, header)
	return c.holds(&p)
}

// Numbers of protocols (IANA).
const (
	protoICMP   = 1
	protoTCP    = 6
	protoUDP    = 17
	protoICMPv6 = 58
)

// packet is one that was read as far as it can be.
type packet struct {
	// family is 4, 6, or 0 for what is not IP.
	family int
	ip     []byte
	length int
	// proto is the protocol behind the extension headers.
	proto uint8
	frag  bool
	// transport is proto where the whole of its header could be read, which head is;
	// else 0. ICMPv6 is ICMP here.
	transport uint8
	head      []byte
	payload   []byte
}

func read(frame []byte, header int) packet {
	var p packet
	kind, ip := ether.Type(frame, header)
	end := len(ip)
	switch {
	case kind == ether.IPv4 && len(ip) >= 20:
		p.family, p.ip, p.proto = 4, ip, ip[9]
		p.length = int(binary.BigEndian.Uint16(ip[2:]))
		if p.length == 0 { // longer than the field can say (BIG TCP)
			p.length = end
		}
		at := int(ip[0]&0x0f) * 4
		fragment := binary.BigEndian.Uint16(ip[6:])
		p.frag = fragment&0x3fff != 0
		if fragment&0x1fff == 0 {
			p.readTransport(at, min(p.length, end))
		}
	case kind == ether.IPv6 && len(ip) >= 40:
		p.family, p.ip, p.proto = 6, ip, ip[6]
		p.length = int(binary.BigEndian.Uint16(ip[4:])) + 40
		if p.length == 40 {
			p.length = end
		}
		if at := p.walk(); at > 0 {
			p.readTransport(at, min(p.length, end))
		}
	}
	return p
}

// walk goes over extension headers, and returns where what they carry begins; 0 where
// that is no header.
func (p *packet) walk() int {
	at := 40
	for range ether.Extensions {
		switch p.proto {
		case 0, 43, 60: // hop-by-hop, routing, destination options
			if len(p.ip) < at+8 {
				return 0
			}
			p.proto, at = p.ip[at], at+(int(p.ip[at+1])+1)*8
		case 44: // fragment
			if len(p.ip) < at+8 {
				return 0
			}
			fragment := binary.BigEndian.Uint16(p.ip[at+2:])
			p.frag = p.frag || fragment&0xfff9 != 0
			p.proto, at = p.ip[at], at+8
			if fragment&0xfff8 != 0 {
				return 0
			}
		default:
			return at
		}
	}
	return at
}

func (p *packet) readTransport(at, end int) {
	size := 0
	switch p.proto {
	case protoTCP:
		if len(p.ip) < at+20 || p.ip[at+12]>>4 < 5 {
			return
		}
		size = int(p.ip[at+12]>>4) * 4
	case protoUDP:
		size = 8
	case protoICMP, protoICMPv6:
		if len(p.ip) >= at+4 {
			p.transport, p.head = protoICMP, p.ip[at:]
		}
		return
	}
	if size == 0 || len(p.ip) < at+8 {
		return
	}
	p.transport, p.head = p.proto, p.ip[at:]
	if at+size < end {
		p.payload = p.ip[at+size : end]
	}
}

func (c And) holds(p *packet) bool { return c.X.holds(p) && c.Y.holds(p) }
func (c Or) holds(p *packet) bool  { return c.X.holds(p) || c.Y.holds(p) }
func (c Not) holds(p *packet) bool { return !c.X.holds(p) }

func (c Is) holds(p *packet) bool {
	v, ok := c.Field.of(p)
	return ok && v != 0
}

func (c At) holds(p *packet) bool {
	return len(p.payload) >= c.Offset+len(c.Text) && bytes.Equal(p.payload[c.Offset:c.Offset+len(c.Text)], c.Text)
}

func (c Compare) holds(p *packet) bool {
	x, ok := c.X.of(p)
	y, also := c.Y.of(p)
	if !ok || !also {
		return false
	}
	switch c.Op {
	case token.EQL:
		return x == y
	case token.NEQ:
		return x != y
	case token.LSS:
		return x < y
	case token.LEQ:
		return x <= y
	case token.GTR:
		return x > y
	}
	return x >= y
}

func (c Const) of(*packet) (int64, bool) { return int64(c), true }

func (b Byte) of(p *packet) (int64, bool) {
	if int(b) >= len(p.payload) {
		return 0, false
	}
	return int64(p.payload[b]), true
}

func (a Arithmetic) of(p *packet) (int64, bool) {
	x, ok := a.X.of(p)
	y, also := a.Y.of(p)
	ok = ok && also
	switch a.Op {
	case token.ADD:
		return x + y, ok
	case token.SUB:
		return x - y, ok
	case token.AND:
		return x & y, ok
	}
	return x | y, ok
}

func (f Field) of(p *packet) (int64, bool) {
	is := func(b bool) (int64, bool) {
		if b {
			return 1, true
		}
		return 0, true
	}
	switch f {
	case IP4:
		return is(p.family == 4)
	case IP6:
		return is(p.family == 6)
	case TCP:
		return is(p.family != 0 && p.proto == protoTCP)
	case UDP:
		return is(p.family != 0 && p.proto == protoUDP)
	case ICMP:
		return is(p.family != 0 && (p.proto == protoICMP || p.proto == protoICMPv6))
	case PayloadLen:
		return int64(len(p.payload)), p.transport == protoTCP || p.transport == protoUDP
	}
	if f < TCPSYN {
		return f.ofIP(p)
	}
	want, at, size := f.Place()
	if p.transport != want {
		return 0, false
	}
	switch {
	case size == 0:
		return int64(len(p.payload)), true
	case size == 1 && f.Flag() != 0:
		return is(p.head[at]&f.Flag() != 0)
	case size == 1:
		return int64(p.head[at]), true
	case size == 2:
		return int64(binary.BigEndian.Uint16(p.head[at:])), true
	}
	return int64(binary.BigEndian.Uint32(p.head[at:])), true
}

func (f Field) ofIP(p *packet) (int64, bool) {
	if p.family == 0 || f == IPID && p.family != 4 {
		return 0, false
	}
	class := p.ip[1] // type of service
	ttl := p.ip[7]
	if p.family == 4 {
		ttl = p.ip[8]
	} else {
		class = byte(binary.BigEndian.Uint16(p.ip) >> 4)
	}
	switch f {
	case IPLen:
		return int64(p.length), true
	case IPTTL:
		return int64(ttl), true
	case IPDSCP:
		return int64(class >> 2), true
	case IPECN:
		return int64(class & 3), true
	case IPID:
		return int64(binary.BigEndian.Uint16(p.ip[4:])), true
	case IPProto:
		return int64(p.proto), true
	}
	if p.frag {
		return 1, true
	}
	return 0, true
}

// Place is where a field of a transport header stands: the protocol, 1 for ICMPv6 too,
// the offset there and the size in bytes. The lengths of payloads have no size.
func (f Field) Place() (proto uint8, at, size int) {
	switch f {
	case TCPSrcPort:
		return protoTCP, 0, 2
	case TCPDstPort:
		return protoTCP, 2, 2
	case TCPSeq:
		return protoTCP, 4, 4
	case TCPAckSeq:
		return protoTCP, 8, 4
	case TCPFlags, TCPSYN, TCPACK, TCPFIN, TCPRST, TCPPSH, TCPURG:
		return protoTCP, 13, 1
	case TCPWindow:
		return protoTCP, 14, 2
	case UDPLen:
		return protoUDP, 0, 0
	case UDPSrcPort:
		return protoUDP, 0, 2
	case UDPDstPort:
		return protoUDP, 2, 2
	case ICMPType:
		return protoICMP, 0, 1
	case ICMPCode:
		return protoICMP, 1, 1
	}
	return protoTCP, 0, 0
}
