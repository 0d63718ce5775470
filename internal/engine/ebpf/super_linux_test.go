package ebpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf/model"
	"netemd/internal/testenv"
	"netemd/qdisc"
)

// superFrame is a super-packet of TCP with its virtio_net_hdr, as the kernel makes it.
func superFrame(version int, tagged bool, options, mss, payload int, flags byte) []byte {
	h := make([]byte, vnetHeader)
	h[vnetFlags], h[vnetGSOType] = vnetNeedsCsum, vnetTCP4
	if version == 6 {
		h[vnetGSOType] = vnetTCP6
	}
	if flags&tcpCWR != 0 {
		h[vnetGSOType] |= vnetECN
	}
	binary.NativeEndian.PutUint16(h[vnetGSOSize:], uint16(mss))
	binary.NativeEndian.PutUint16(h[vnetCsumOffset:], 16)

	tcp := make([]byte, 20+options, 20+options+payload)
	for i := range options {
		tcp[20+i] = 1 // no operation
	}
	copy(tcp, []byte{0x9c, 0x40, 0x0f, 0xa0, 0xff, 0xff, 0xf0, 0x00, 1, 2, 3, 4, byte(20+options) << 2, flags, 0x20, 0})
	for i := range payload {
		tcp = append(tcp, byte(i*7))
	}
	pseudo := make([]byte, 0, 40)
	var ip []byte
	if version == 4 {
		ip = []byte{0x45, 2, 0, 0, 0xff, 0xfe, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(tcp)))
		binary.BigEndian.PutUint16(ip[10:], checksum(ip))
		pseudo = append(append(pseudo, ip[12:20]...), 0, 6)
	} else {
		ip = make([]byte, 40)
		ip[0], ip[1], ip[6], ip[7] = 0x60, 0x20, 6, 64
		binary.BigEndian.PutUint16(ip[4:], uint16(len(tcp)))
		copy(ip[8:], net.ParseIP("fd00::1"))
		copy(ip[24:], net.ParseIP("fd00::2"))
		pseudo = append(append(pseudo, ip[8:40]...), 0, 6)
	}
	pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(tcp)))
	binary.BigEndian.PutUint16(tcp[16:], ^checksum(pseudo))

	link := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	if tagged {
		link = append(link, 0x81, 0, 0, 7)
	}
	kind := map[int]uint16{4: unix.ETH_P_IP, 6: unix.ETH_P_IPV6}[version]
	link = binary.BigEndian.AppendUint16(link, kind)
	binary.NativeEndian.PutUint16(h[vnetCsumStart:], uint16(len(link)+len(ip)))
	binary.NativeEndian.PutUint16(h[vnetHeaderLen:], uint16(len(link)+len(ip)+20+options))
	return bytes.Join([][]byte{h, link, ip, tcp}, nil)
}

// atEnd closes something when the test is over.
func atEnd(t *testing.T, end func() error) {
	t.Cleanup(func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// The kernel cuts a super-packet into the same frames, byte for byte, and cuts parts of
// it that stayed together into them, too.
func TestCutAsTheKernelDoes(t *testing.T) {
	testenv.Root(t)
	l := newLab(t)
	var (
		tp *tap
		s  *socket
	)
	l.in(t, l.client, func() (err error) {
		if tp, err = newTAP(); err != nil {
			return err
		}
		if err := unix.IoctlSetInt(tp.fd, unix.TUNSETOFFLOAD, 0); err != nil {
			return err
		}
		s, err = newSocket(tp.index, 0)
		return err
	})
	atEnd(t, tp.close)
	atEnd(t, s.close)
	// kernel sends f to a device that cannot do segmentation, and returns what comes.
	kernel := func(f []byte) (out [][]byte) {
		t.Helper()
		if _, err := s.send([]packet{{frame: bytes.Clone(f)}}); err != nil {
			t.Fatal(err)
		}
		for {
			b := make([]byte, maxFrame)
			n, err := unix.Read(tp.fd, b)
			if err != nil {
				return out
			}
			clear(b[:vnetHeader])
			out = append(out, b[:n])
		}
	}
	const fin, psh, ack, cwr = tcpFIN, tcpPSH, 0x10, tcpCWR
	for _, tt := range []struct {
		version               int
		tagged                bool
		options, mss, payload int
		flags                 byte
	}{
		{4, false, 12, 1448, 10 * 1448, ack},
		{4, false, 0, 1000, 4321, fin | psh | ack | cwr},
		{4, true, 40, 100, 1001, psh | ack},
		{6, false, 12, 1428, 10 * 1428, psh | ack | cwr},
		{6, true, 0, 8, 17, fin | ack}, // the smallest, TCP_MIN_GSO_SIZE
		{4, false, 12, 1448, 65535 - 52, psh | ack},
	} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			f := superFrame(tt.version, tt.tagged, tt.options, tt.mss, tt.payload, tt.flags)
			before := bytes.Clone(f)
			want := kernel(f)
			super, ok := superOf(f)
			if !ok || super.count != len(want) || super.count != (tt.payload+tt.mss-1)/tt.mss {
				t.Fatalf("%t, %d segments, the kernel makes %d", ok, super.count, len(want))
			}
			part := func(first, end int) []byte {
				b := make([]byte, vnetHeader+super.size(first, end))
				super.cut(b, first, end)
				return b
			}
			for i := range super.count {
				b := part(i, i+1)
				if !seal(b) {
					t.Fatal("the checksum cannot be put")
				}
				if !bytes.Equal(b, want[i]) {
					t.Fatalf("segment %d (-kernel +ours):\n%s", i, cmp.Diff(want[i], b))
				}
			}
			for _, r := range [][2]int{{0, super.count}, {0, 2}, {1, 3}, {super.count - 2, super.count}} {
				if diff := cmp.Diff(want[r[0]:r[1]], kernel(part(r[0], r[1]))); diff != "" {
					t.Errorf("segments %v together (-at once +in parts):\n%s", r, diff)
				}
			}
			if !bytes.Equal(f, before) {
				t.Error("the super-packet itself was changed")
			}
		})
	}
}

// What is no super-packet, or makes no sense, is none.
func TestNoSuper(t *testing.T) {
	good := superFrame(4, false, 12, 1000, 3000, 0x10)
	if _, ok := superOf(good); !ok {
		t.Fatal("a super-packet is none")
	}
	for name, change := range map[string]func(b []byte) []byte{
		"one frame":          func(b []byte) []byte { b[vnetGSOType] = 0; return b },
		"UDP":                func(b []byte) []byte { b[vnetGSOType] = 5; return b },
		"the other version":  func(b []byte) []byte { b[vnetGSOType] = vnetTCP6; return b },
		"checksum put":       func(b []byte) []byte { b[vnetFlags] = 0; return b },
		"no size":            func(b []byte) []byte { b[vnetGSOSize], b[vnetGSOSize+1] = 0, 0; return b },
		"TCP within IP":      func(b []byte) []byte { b[vnetCsumStart] = 15; return b },
		"TCP behind the end": func(b []byte) []byte { b[vnetCsumStart+1] = 0xff; return b },
		"no IP":              func(b []byte) []byte { b[vnetHeader+12] = 0x12; return b },
		"no data":            func(b []byte) []byte { return b[:vnetHeader+14+20+32] },
		"cut off":            func(b []byte) []byte { return b[:vnetHeader+14+20+19] },
		"nothing":            func(b []byte) []byte { return b[:vnetHeader] },
	} {
		if s, ok := superOf(change(bytes.Clone(good))); ok {
			t.Errorf("%s: a super-packet: %+v", name, s)
		}
	}
}

// output that keeps what it is given.
type keeper [][]byte

func (k *keeper) send(ps []packet) (int, error) {
	for _, p := range ps {
		*k = append(*k, bytes.Clone(p.frame))
	}
	return len(ps), nil
}
func (*keeper) fd() int    { return -1 }
func (*keeper) gone() bool { return false }

// Segments go their ways one by one, and neighbours that leave together stay together,
// so that each is lost, delayed and counted as if it had come alone.
func TestSegments(t *testing.T) {
	const mss, count = 1000, 40
	for name, n := range map[string]qdisc.Netem{
		"nothing lost":  {Delay: ms, Duplicate: 1e-7},
		"loss":          {Delay: ms, Loss: 20},
		"all lost":      {Loss: 100},
		"duplicate":     {Delay: ms, Duplicate: 30},
		"reorder":       {Delay: ms, Reorder: 30},
		"corrupt":       {Delay: ms, Corrupt: 20},
		"rate":          {Rate: 1_000_000},
		"limit":         {Delay: ms, Loss: 10, Limit: 20},
		"slots":         {Slot: qdisc.Slot{MinDelay: ms, Packets: 3}},
		"all of it":     {Delay: 5 * ms, Jitter: 4 * ms, Loss: 10, Duplicate: 20, Reorder: 20, Corrupt: 10},
		"marked":        {Loss: 30, ECN: true},
		"GemodelBursts": {GilbertElliott: qdisc.GilbertElliott{P: 10, R: 30}},
	} {
		t.Run(name, func(t *testing.T) {
			n.Seed = 3
			n = n.Normalize()
			// run sends frames through a queue and returns what leaves, in order.
			run := func(frames ...[]byte) (sent [][]byte, q *queue) {
				var out keeper
				q = &queue{out: &out}
				l := &loop{queue: q, used: model.New(n)}
				for _, f := range frames {
					b := l.pool.get(len(f))
					copy(b, f)
					l.frame(0, b)
				}
				for t := int64(0); l.packets > 0; t = max(t+1, l.next) {
					l.flush(t)
				}
				if l.bytes != 0 || len(l.waiting) != 0 {
					t.Errorf("%d bytes and %d frames are left", l.bytes, len(l.waiting))
				}
				return out, q
			}
			whole := superFrame(4, false, 12, mss, count*mss, 0x18)
			s, _ := superOf(whole)
			var alone [][]byte
			for i := range count {
				b := make([]byte, vnetHeader+s.size(i, i+1))
				s.cut(b, i, i+1)
				alone = append(alone, b)
			}
			want, wq := run(alone...)
			parts, gq := run(whole)
			var got [][]byte
			for _, f := range parts {
				p, ok := superOf(f)
				if !ok {
					got = append(got, f)
				}
				for i := range p.count {
					b := make([]byte, vnetHeader+p.size(i, i+1))
					p.cut(b, i, i+1)
					got = append(got, b)
				}
			}
			if len(got) != len(want) {
				t.Fatalf("%d leave, %d when they come alone", len(got), len(want))
			}
			for i := range want {
				if !bytes.Equal(got[i], want[i]) {
					t.Fatalf("frame %d of %d (-alone +together):\n%s", i, len(want), cmp.Diff(want[i], got[i]))
				}
			}
			count := func(q *queue) [7]uint64 {
				return [...]uint64{
					q.frames.Load(), q.lossy.Load(), q.overflow.Load(), q.delayed.Load(),
					q.duplicated.Load(), q.reordered.Load(), q.corrupted.Load(),
				}
			}
			if diff := cmp.Diff(count(wq), count(gq)); diff != "" {
				t.Errorf("counters (-alone +together):\n%s", diff)
			}
			t.Logf("%d segments leave in %d frames", len(got), len(parts))
		})
	}
}
