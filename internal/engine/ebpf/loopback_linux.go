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
// they pass the chains OUTPUT and POSTROUTING of netfilter once more. A packet of a flow
// that netfilter translates gets back what it had before, in IPv6 too, and is translated
// like the first time; as it came, it would be one of another flow, to which no answer
// belongs. Packets of other protocols than TCP and UDP go as they came.
type loopback struct {
	*socket
	flows *conntrack
	raw   [2]rawSocket // IPv4, IPv6
	pool  pool
}

// rawSocket sends packets with their IP headers.
type rawSocket struct {
	num    int
	cookie uint64
	to     unix.Sockaddr
	// address is that of to.
	address []byte
}

// rawMark is the mark of packets that leave through a raw socket. It tells other agents
// that they are out of a queue, and rules at OUTPUT see it, so the lower half is left to
// what others mark there (kube-proxy 0x4000 and 0x8000).
const rawMark = markOwn

// newLoopback opens it in the calling thread's namespace.
func newLoopback(s *socket) (l *loopback, err error) {
	l = &loopback{socket: s, raw: [2]rawSocket{{num: -1}, {num: -1}}}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	if l.flows, err = newConntrack(); err != nil {
		return nil, err
	}
	to4, to6 := &unix.SockaddrInet4{}, &unix.SockaddrInet6{}
	l.raw[0].to, l.raw[0].address = to4, to4.Addr[:]
	l.raw[1].to, l.raw[1].address = to6, to6.Addr[:]
	for i, family := range []int{unix.AF_INET, unix.AF_INET6} {
		err := l.raw[i].open(family)
		if errors.Is(err, unix.EAFNOSUPPORT) && family == unix.AF_INET6 {
			continue // and no packets of it
		}
		if err != nil {
			return nil, fmt.Errorf("raw socket: %w", err)
		}
	}
	return l, nil
}

func (r *rawSocket) open(family int) (err error) {
	// Protocol IPPROTO_RAW receives nothing, and packets bring their headers along.
	r.num, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	if err != nil {
		r.num = -1
		return err
	}
	if err := unix.SetsockoptInt(r.num, unix.SOL_SOCKET, unix.SO_MARK, rawMark); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(r.num, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(r.num, unix.SOL_SOCKET, unix.SO_BROADCAST, 1); err != nil {
		return err
	}
	r.cookie, err = unix.GetsockoptUint64(r.num, unix.SOL_SOCKET, unix.SO_COOKIE)
	return err
}

// cookies are those of the raw sockets.
func (l *loopback) cookies() (all []uint64) {
	for _, r := range l.raw {
		if r.num >= 0 {
			all = append(all, r.cookie)
		}
	}
	return all
}

func (l *loopback) send(packets []packet) (int, error) {
	for i := range packets {
		if err := l.one(packets[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(packets), nil
}

func (l *loopback) one(p []packet) error {
	f := p[0].frame
	ip := ipHeader(f[vnetHeader:])
	if ip == nil {
		_, err := l.socket.send(p)
		return err
	}
	now, known := flowOf(ip)
	before := now
	if known {
		var err error
		if before, err = l.flows.before(now); err != nil {
			return err
		}
	}
	if ip[0]>>4 != 4 && before == now {
		_, err := l.socket.send(p)
		return err
	}
	return l.route(f, now, before)
}

// route sends a frame of IP, of the flow now, as one of the flow before; a super-packet is
// cut, since a raw socket takes none.
func (l *loopback) route(frame []byte, now, before flowKey) error {
	s, ok := superOf(frame)
	if !ok {
		return l.sealed(frame, now, before)
	}
	for i := range s.count {
		b := l.pool.get(vnetHeader + s.size(i, i+1))
		s.cut(b, i, i+1)
		err := l.sealed(b, now, before)
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

// sealed sends a frame of IP with its checksum put.
func (l *loopback) sealed(frame []byte, now, before flowKey) error {
	if !seal(frame) {
		return unix.EINVAL
	}
	ip := ipHeader(frame[vnetHeader:])
	if before != now {
		rewrite(ip, before)
	}
	r := &l.raw[0]
	if ip[0]>>4 != 4 {
		r = &l.raw[1]
	}
	_, to := addressesOf(ip)
	copy(r.address, to)
	err := unix.Sendto(r.num, ip, unix.MSG_DONTWAIT, r.to)
	if err != nil && before != now {
		rewrite(ip, now) // it may be sent again
	}
	return err
}

func (l *loopback) close() error {
	var errs []error
	for _, r := range l.raw {
		if r.num >= 0 {
			errs = append(errs, unix.Close(r.num))
		}
	}
	if l.flows != nil {
		errs = append(errs, l.flows.close())
	}
	return errors.Join(errs...)
}
