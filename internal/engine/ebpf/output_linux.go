package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"

	"netemd/namespaces"
)

// batch is how many packets go through one system call.
const batch = 64

// sendBuffer bounds what the socket has in the device's own queue; more waits here.
const sendBuffer = 32 << 20

// socket is a packet socket that sends to one device, through its qdisc.
type socket struct {
	num    int
	cookie uint64
	msgs   [batch]mmsghdr
	iov    [batch]unix.Iovec
}

// mmsghdr is struct mmsghdr of sendmmsg(2).
type mmsghdr struct {
	unix.Msghdr
	_ uint32 // bytes sent
}

// newSocket opens it in the calling thread's namespace.
func newSocket(index int, mark uint32) (*socket, error) {
	// Protocol 0 receives nothing.
	num, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	s := &socket{num: num}
	for i := range s.msgs {
		s.msgs[i].Iov = &s.iov[i]
		s.msgs[i].SetIovlen(1)
	}
	if err := s.setUp(index, mark); err != nil {
		return nil, errors.Join(fmt.Errorf("packet socket: %w", err), s.close())
	}
	return s, nil
}

func (s *socket) setUp(index int, mark uint32) error {
	if err := unix.SetsockoptInt(s.num, unix.SOL_SOCKET, unix.SO_MARK, int(mark)); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(s.num, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(s.num, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer); err != nil {
		return err
	}
	if err := unix.Bind(s.num, &unix.SockaddrLinklayer{Ifindex: index}); err != nil {
		return err
	}
	var err error
	s.cookie, err = unix.GetsockoptUint64(s.num, unix.SOL_SOCKET, unix.SO_COOKIE)
	return err
}

func (s *socket) send(packets []packet) (int, error) {
	for i := range packets {
		f := packets[i].frame
		s.iov[i].Base = &f[0]
		s.iov[i].SetLen(len(f))
	}
	n, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(s.num), uintptr(unsafe.Pointer(&s.msgs)), uintptr(len(packets)), unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func (s *socket) fd() int { return s.num }

// gone looks at the bound index, which the kernel sets to -1 with the device.
func (s *socket) gone() bool {
	sa, err := unix.Getsockname(s.num)
	ll, ok := sa.(*unix.SockaddrLinklayer)
	return err == nil && ok && ll.Ifindex < 0
}

func (s *socket) close() error { return unix.Close(s.num) }

// writer gives packets back to the TAP that they came from.
type writer struct {
	tap       int
	namespace string
	index     int
}

func (w *writer) send(packets []packet) (int, error) {
	for i := range packets {
		if _, err := unix.Write(w.tap, packets[i].frame); err != nil {
			return i, err
		}
	}
	return len(packets), nil
}

func (w *writer) fd() int { return w.tap }

func (w *writer) gone() bool {
	err := namespaces.Do(context.Background(), w.namespace, func() error {
		_, err := device(w.index)
		return err
	})
	return errors.Is(err, fs.ErrNotExist)
}
