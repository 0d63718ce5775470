package probe

import (
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a second descriptor of a call's socket, so that the kernel's account
// can be read after the client has closed its own, as it does when a connect
// fails. It keeps the socket alive, and with it the retries of its SYN, so it is
// closed before the call returns.
type socket struct{ fd int }

// control duplicates the descriptor; it has the form of net.Dialer.Control. When
// the process has no descriptor left, the call goes on without an account.
func (s *socket) control(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		s.close()
		s.fd = -1
		if d, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			s.fd = d
		}
	})
}

func newSocket() *socket { return &socket{fd: -1} }

// info reads TCP_INFO; nil when there is no socket.
func (s *socket) info() *TCPInfo {
	if s.fd < 0 {
		return nil
	}
	ti, err := unix.GetsockoptTCPInfo(s.fd, unix.SOL_TCP, unix.TCP_INFO)
	if err != nil {
		return nil
	}
	return &TCPInfo{
		TotalRetransmits: ti.Total_retrans,
		TotalRTO:         ti.Total_rto,
		Backoff:          ti.Backoff,
		RTONS:            int64(ti.Rto) * int64(time.Microsecond),
		RTTNS:            int64(ti.Rtt) * int64(time.Microsecond),
	}
}

// local is the socket's own address, which a connect that is still under way has
// as well.
func (s *socket) local() netip.AddrPort {
	if s.fd < 0 {
		return netip.AddrPort{}
	}
	sa, err := unix.Getsockname(s.fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr).Unmap(), uint16(a.Port))
	}
	return netip.AddrPort{}
}

func (s *socket) close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd) // the descriptor is gone either way
		s.fd = -1
	}
}
