package ebpf

import (
	"encoding/binary"
	"math"
)

// maxFrame is the longest frame with its header: 64 KB of loopback with a link
// header, or a super-packet, and virtio_net_hdr.
const maxFrame = vnetHeader + 14 + 8 + math.MaxUint16 + 1

// smallFrame holds what fits a usual MTU.
const smallFrame = 2048

// sizes are those of buffers: 100,000 waiting packets shall not take 64 KB each, nor
// small ones 2 KB.
var sizes = [...]int{256, smallFrame, maxFrame}

// pool keeps buffers for one thread, so that packets cost no allocation. It grows
// as far as the queue does, which is bounded.
type pool [len(sizes)][][]byte

// get returns a buffer for n bytes.
func (p *pool) get(n int) []byte {
	i := class(n)
	free := &p[i]
	if k := len(*free); k > 0 {
		b := (*free)[k-1]
		*free = (*free)[:k-1]
		return b[:n]
	}
	return make([]byte, n, sizes[i])
}

func (p *pool) put(b []byte) {
	free := &p[class(cap(b))]
	*free = append(*free, b[:0])
}

// trim gives the memory back.
func (p *pool) trim() { *p = pool{} }

// class is the smallest size that holds n bytes.
func class(n int) int {
	for i, size := range sizes {
		if n <= size {
			return i
		}
	}
	return len(sizes) - 1
}

// packet is a frame, with its virtio_net_hdr, that waits.
type packet struct {
	due int64
	// order keeps packets with the same due time in the order of their coming.
	order uint64
	frame []byte
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
	if h[vnetFlags]&vnetNeedsCsum != 0 {
		start := int(binary.NativeEndian.Uint16(h[vnetCsumStart:]))
		at := start + int(binary.NativeEndian.Uint16(h[vnetCsumOffset:]))
		if at+2 > len(data) {
			return false
		}
		// The field holds the sum of the pseudo header already; a UDP checksum of 0
		// means none and is sent as 0xffff.
		sum := checksum(data[start:])
		if sum == 0 {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(data[at:], sum)
		clear(h)
	}
	data[bit/8] ^= 1 << (bit % 8)
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
