package ebpf

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// maxFrame is the longest frame with its header: 64 KB of loopback with a link
// header, or a super-packet, and virtio_net_hdr.
const maxFrame = vnetHeader + 14 + 8 + math.MaxUint16 + 1

// smallFrame holds what fits a usual MTU.
const smallFrame = 2048

// Buffers have sizes of powers of two, from the smallest up to what holds any frame, so
// that 100,000 waiting packets take no more than twice their bytes.
const (
	smallest = 256
	sizes    = 10 // smallest << 9 holds maxFrame
)

// maxSpare is how many bytes of unused buffers are kept for the next packets.
const maxSpare = 32 << 20

// pool keeps buffers for one thread, so that packets cost no allocation.
type pool struct {
	free  [sizes][][]byte
	spare int // bytes
}

// get returns a buffer for n bytes.
func (p *pool) get(n int) []byte {
	i := class(n)
	free := &p.free[i]
	if k := len(*free); k > 0 {
		b := (*free)[k-1]
		*free = (*free)[:k-1]
		p.spare -= cap(b)
		return b[:n]
	}
	return make([]byte, n, min(smallest<<i, maxFrame))
}

func (p *pool) put(b []byte) {
	if p.spare+cap(b) > maxSpare {
		return
	}
	p.spare += cap(b)
	free := &p.free[class(cap(b))]
	*free = append(*free, b[:0])
}

// trim gives the memory back.
func (p *pool) trim() { *p = pool{} }

// class is the smallest size that holds n bytes.
func class(n int) int { return bits.Len(uint(max(n, 1)-1) / smallest) }

// packet is a frame, with its virtio_net_hdr, that waits.
type packet struct {
	due int64
	// count is how many packets of the wire it stands for, more than 1 for a
	// super-packet whose segments the model has seen.
	count int
	// order keeps packets with the same due time in the order of their coming.
	order uint64
	frame []byte
	// delayed says that it has been counted so.
	delayed bool
}

func (p *packet) before(q *packet) bool {
	return p.due < q.due || p.due == q.due && p.order < q.order
}

// timeline is a heap of packets by the time that they are due.
type timeline []packet

func (h *timeline) push(p packet) {
	*h = append(*h, p)
	s := *h
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !p.before(&s[up]) {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = p
}

func (h *timeline) pop() packet {
	s := *h
	top, last := s[0], s[len(s)-1]
	s[len(s)-1] = packet{}
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return top
	}
	i := 0
	for {
		down := 2*i + 1
		if down >= len(s) {
			break
		}
		if right := down + 1; right < len(s) && s[right].before(&s[down]) {
			down = right
		}
		if !s[down].before(&last) {
			break
		}
		s[i] = s[down]
		i = down
	}
	s[i] = last
	return top
}

// flip flips one bit of the frame behind the header, and reports whether it did. A
// checksum that is still open is put first, or the receiver would get a good one
// over the flipped bit. A super-packet's cannot be.
func flip(frame []byte, bit int) bool {
	h, data := frame[:vnetHeader], frame[vnetHeader:]
	if h[vnetGSOType] != 0 {
		return false
	}
	if !seal(frame) {
		return false
	}
	data[bit/8] ^= 1 << (bit % 8)
	return true
}

// seal puts a frame's open checksum, if there is one, and reports whether it could.
func seal(frame []byte) bool {
	h, data := frame[:vnetHeader], frame[vnetHeader:]
	if h[vnetFlags]&vnetNeedsCsum == 0 {
		return true
	}
	start := int(binary.NativeEndian.Uint16(h[vnetCsumStart:]))
	at := start + int(binary.NativeEndian.Uint16(h[vnetCsumOffset:]))
	if at+2 > len(data) {
		return false
	}
	// The field holds the sum of the pseudo header already; a UDP checksum of 0 means
	// none and is sent as 0xffff.
	sum := checksum(data[start:])
	if sum == 0 {
		sum = 0xffff
	}
	binary.BigEndian.PutUint16(data[at:], sum)
	clear(h)
	return true
}

// checksum is the Internet checksum (RFC 1071).
func checksum(b []byte) uint16 {
	var sum uint64
	for ; len(b) >= 2; b = b[2:] {
		sum += uint64(b[0])<<8 | uint64(b[1])
	}
	if len(b) == 1 {
		sum += uint64(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
