package ebpf

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// loopback sends to a loopback device. A packet socket's IPv4 packets would come in
// there without their route, and the kernel refuses 127.0.0.0/8 as a source then, unless
// the sysctls route_localnet and accept_local say otherwise, which would outlive a killed
// process. So they leave through a raw socket, which routes them like the first time:
// they pass the chains OUTPUT and POSTROUTING of netfilter once more.
type loopback struct {
	*socket
	raw    int
	cookie uint64 // of raw
	pool   pool
	to     unix.SockaddrInet4
}

// newLoopback opens it in the calling thread's namespace.
func newLoopback(s *socket, mark uint32) (*loopback, error) {
	// Protocol IPPROTO_RAW receives nothing, and packets bring their headers along.
	num, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		return nil, fmt.Errorf("raw socket: %w", err)
	}
	l := &loopback{socket: s, raw: num}
	err = unix.SetsockoptInt(num, unix.SOL_SOCKET, unix.SO_MARK, int(mark))
	if err == nil {
		err = unix.SetsockoptInt(num, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer)
	}
	if err == nil {
		err = unix.SetsockoptInt(num, unix.SOL_SOCKET, unix.SO_BROADCAST, 1)
	}
	if err == nil {
		l.cookie, err = unix.GetsockoptUint64(num, unix.SOL_SOCKET, unix.SO_COOKIE)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("raw socket: %w", err), unix.Close(num))
	}
	return l, nil
}

func (l *loopback) send(packets []packet) (int, error) {
	for i := range packets {
		f := packets[i].frame
		var err error
		if ip := ipHeader(f[vnetHeader:]); ip != nil && ip[0]>>4 == 4 {
			err = l.route(f)
		} else {
			_, err = l.socket.send(packets[i : i+1])
		}
		if err != nil {
			return i, err
		}
	}
	return len(packets), nil
}

// route sends a frame of IPv4; a super-packet is cut, since a raw socket takes none.
func (l *loopback) route(frame []byte) error {
	s, ok := superOf(frame)
	if !ok {
		return l.sealed(frame)
	}
	for i := range s.count {
		b := l.pool.get(vnetHeader + s.size(i, i+1))
		s.cut(b, i, i+1)
		err := l.sealed(b)
		l.pool.put(b)
		if errors.Is(err, unix.EAGAIN) && i > 0 {
			return unix.ENOBUFS // or the first ones would be sent again
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sealed sends a frame of IPv4 with its checksum put.
func (l *loopback) sealed(frame []byte) error {
	if !seal(frame) {
		return unix.EINVAL
	}
	ip := ipHeader(frame[vnetHeader:])
	copy(l.to.Addr[:], ip[16:20])
	return unix.Sendto(l.raw, ip, unix.MSG_DONTWAIT, &l.to)
}

func (l *loopback) close() error { return unix.Close(l.raw) }
