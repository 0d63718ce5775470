package ebpf

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTimeline(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h timeline
	var want, got []packet
	for i := range uint64(5000) {
		p := packet{due: r.Int64N(100), order: i}
		h.push(p)
		want = append(want, p)
		if i%3 == 0 { // some leave in between, and come back
			h.push(h.pop())
		}
	}
	slices.SortFunc(want, func(a, b packet) int {
		if a.before(&b) {
			return -1
		}
		return 1
	})
	for len(h) > 0 {
		got = append(got, h.pop())
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(packet{})); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestPool(t *testing.T) {
	var p pool
	for _, n := range []int{1, 256, 257, smallFrame, smallFrame + 1, 65536, maxFrame} {
		b := p.get(n)
		if len(b) != n {
			t.Errorf("%d bytes for %d", len(b), n)
		}
		p.put(b)
		again := p.get(n)
		if &again[0] != &b[0] {
			t.Errorf("a buffer for %d was not used again", n)
		}
		p.put(again)
	}
	if n := testing.AllocsPerRun(100, func() { p.put(p.get(100)) }); n != 0 {
		t.Errorf("%.0f allocations", n)
	}
}

// A flipped bit must not get a checksum that fits it.
func TestFlip(t *testing.T) {
	const start, offset, bit = 34, 6, 8*50 + 3
	frame := func(flags, gso byte, size int) []byte {
		b := make([]byte, vnetHeader+size)
		b[vnetFlags], b[vnetGSOType] = flags, gso
		binary.NativeEndian.PutUint16(b[vnetCsumStart:], start)
		binary.NativeEndian.PutUint16(b[vnetCsumOffset:], offset)
		for i := range size {
			b[vnetHeader+i] = byte(i)
		}
		return b
	}
	for _, size := range []int{60, 61} {
		plain := frame(0, 0, size)
		want := bytes.Clone(plain)
		want[vnetHeader+50] ^= 1 << 3
		if !flip(plain, bit) || !bytes.Equal(plain, want) {
			t.Errorf("size %d: more or less than one bit changed", size)
		}

		// The field of an open checksum holds the pseudo header's sum. The receiver adds
		// that to the whole segment and wants 0xffff.
		open := frame(vnetNeedsCsum, 0, size)
		pseudo := binary.BigEndian.Uint16(open[vnetHeader+start+offset:])
		receive := func(data []byte) uint32 {
			sum := uint32(^checksum(data[start:])) + uint32(pseudo)
			return sum>>16 + sum&0xffff
		}
		if !flip(open, bit) || open[vnetFlags] != 0 {
			t.Fatalf("size %d: the checksum was left open", size)
		}
		data := open[vnetHeader:]
		if receive(data) == 0xffff {
			t.Errorf("size %d: the checksum fits the flipped bit", size)
		}
		data[50] ^= 1 << 3
		if got := receive(data); got != 0xffff {
			t.Errorf("size %d: the checksum does not fit what was sent: %#x", size, got)
		}
	}
	if flip(frame(vnetNeedsCsum, 1, 60), bit) {
		t.Error("a super-packet was corrupted")
	}
	short := frame(vnetNeedsCsum, 0, 60)
	binary.NativeEndian.PutUint16(short[vnetCsumOffset:], 60)
	if flip(short, bit) {
		t.Error("a checksum outside the frame was put")
	}
}
