package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"netemd/namespaces"
)

// captureBuffer is how much may wait to be read: some 80,000 packets.
const captureBuffer = 64 << 20

// capture reads packets off a device, with the kernel's time of each.
type capture struct {
	fd     int
	packet packet
	// header is the length of the device's link header, outgoing which way is meant.
	header   int
	outgoing bool
	last     atomic.Int64 // when the last one came
}

// view is where packets are looked at: a device and which of its packets. After says
// that it is behind the device's ingress hook: there, only packets of the flow's own
// EtherType are seen.
type view struct {
	namespace string
	index     int
	header    int
	outgoing  bool
	after     bool
}

// newCapture opens a packet socket in the view's namespace.
func newCapture(ctx context.Context, v view, p packet) (*capture, error) {
	c := &capture{fd: -1, packet: p, header: v.header, outgoing: v.outgoing}
	err := namespaces.Do(ctx, v.namespace, func() (err error) {
		// Protocol 0 receives nothing until the filter is there and the socket bound.
		c.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("capture: packet socket: %w", err)
	}
	if err := c.setUp(v); err != nil {
		return nil, errors.Join(fmt.Errorf("capture: %w", err), unix.Close(c.fd))
	}
	return c, nil
}

func (c *capture) setUp(v view) error {
	filter := c.filter()
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	// How often a reader looks whether it shall end.
	timeout := unix.NsecToTimeval(int64(20 * time.Millisecond))
	protocol := unix.ETH_P_ALL
	if v.after {
		protocol = etherType(c.packet.flow)
	}
	for _, step := range []func() error{
		func() error { return unix.SetsockoptSockFprog(c.fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &program) },
		func() error { return unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, captureBuffer) },
		func() error { return unix.SetsockoptInt(c.fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1) },
		func() error { return unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout) },
		func() error {
			return unix.Bind(c.fd, &unix.SockaddrLinklayer{Protocol: network16(protocol), Ifindex: v.index})
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func etherType(f flow) int {
	if f.to.Addr().Is4() {
		return unix.ETH_P_IP
	}
	return unix.ETH_P_IPV6
}

func network16(v int) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], uint16(v))
	return binary.NativeEndian.Uint16(b[:])
}

// filter lets pass what begins one of the two labels as ours do.
func (c *capture) filter() []unix.SockFilter {
	first, second := c.packet.labels()
	magic := c.packet.magic()
	load := func(at int) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: uint32(c.header + at)}
	}
	equal := func(jump uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: jump, K: magic}
	}
	give := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	return []unix.SockFilter{load(first), equal(3), load(second), equal(1), give(0), give(0xffff)}
}

// close ends the capture and returns how many packets it had no room for.
func (c *capture) close() (missed int, err error) {
	stats, err := unix.GetsockoptTpacketStats(c.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err == nil {
		missed = int(stats.Drops)
	}
	return missed, errors.Join(err, unix.Close(c.fd))
}

// frame is a packet that came, and what hops change alike for all of them: the link
// header and the hop limit.
type frame struct {
	arrival
	way string
}

// read gathers packets until stop is closed. Times are since start.
func (c *capture) read(start time.Time, total int, stop <-chan struct{}) ([]frame, error) {
	var (
		frames  []frame
		ways    = map[string]string{}
		buffer  = make([]byte, 1<<16)
		control = make([]byte, 256)
		scratch = make([]byte, c.packet.size)
	)
	for {
		n, oobn, _, from, err := unix.Recvmsg(c.fd, buffer, control, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			select {
			case <-stop:
				return frames, nil
			default:
				continue
			}
		case err != nil:
			return frames, fmt.Errorf("capture: receive: %w", err)
		}
		sender, ok := from.(*unix.SockaddrLinklayer)
		if !ok || n < c.header || (sender.Pkttype == unix.PACKET_OUTGOING) != c.outgoing {
			continue
		}
		at := stamp(control[:oobn])
		ip := buffer[c.header:n]
		number, ok := c.packet.number(ip)
		if !ok || number >= total {
			continue
		}
		c.packet.fill(scratch, uint32(number))
		f := frame{arrival: arrival{number: number, at: at.Sub(start.Round(0))}}
		var hops byte
		f.damaged, f.marked, hops = c.packet.compare(ip, scratch)
		// Few different ones come, so that they are kept once.
		way := append(append(make([]byte, 0, 32), buffer[:c.header]...), hops)
		if known, ok := ways[string(way)]; ok {
			f.way = known
		} else {
			f.way = string(way)
			ways[f.way] = f.way
		}
		frames = append(frames, f)
		c.last.Store(int64(f.at))
	}
}

// stamp is the kernel's time of a packet, or the present where it gives none.
func stamp(control []byte) time.Time {
	messages, err := unix.ParseSocketControlMessage(control)
	if err == nil {
		for _, m := range messages {
			if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
				ts := (*unix.Timespec)(unsafe.Pointer(&m.Data[0]))
				return time.Unix(ts.Unix())
			}
		}
	}
	return time.Now().Round(0)
}

// settle takes a packet for damaged that did not come the way that most did: a bit of
// its link header or its hop limit was flipped.
func settle(frames []frame) []arrival {
	count, most := map[string]int{}, ""
	for _, f := range frames {
		if count[f.way]++; count[f.way] > count[most] {
			most = f.way
		}
	}
	arrivals := make([]arrival, 0, len(frames))
	for _, f := range frames {
		f.damaged = f.damaged || f.way != most
		arrivals = append(arrivals, f.arrival)
	}
	return arrivals
}
