package probe

import (
	"math"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// account is a second descriptor of a call's socket, so that the kernel's account
// of it can be read after the client has closed its own, as it does when a connect
// fails. It keeps the socket alive, and with it the retries of its SYN, so it is
// closed before the call returns.
type account struct{ fd int }

// control duplicates the descriptor; it has the form of net.Dialer.Control. When
// the process has no descriptor left, the call goes on without an account.
func (a *account) control(_, _ string, c syscall.RawConn) error {
	return c.Control(func(fd uintptr) {
		a.close()
		a.fd = -1
		if d, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3); err == nil {
			a.fd = d
		}
	})
}

func newAccount() account { return account{fd: -1} }

// info reads TCP_INFO; nil when there is no socket.
func (a *account) info() (info *TCPInfo, quiet bool) {
	if a.fd < 0 {
		return nil, false
	}
	return tcpInfo(a.fd)
}

// tcpInfo reads TCP_INFO of a socket; nil when it cannot. quiet says that nothing that was
// sent is unacknowledged.
func tcpInfo(fd int) (info *TCPInfo, quiet bool) {
	ti, err := unix.GetsockoptTCPInfo(fd, unix.SOL_TCP, unix.TCP_INFO)
	if err != nil {
		return nil, false
	}
	return &TCPInfo{
		TotalRetransmits: ti.Total_retrans,
		TotalRTO:         ti.Total_rto,
		Backoff:          ti.Backoff,
		RTONS:            int64(ti.Rto) * int64(time.Microsecond),
		RTTNS:            int64(ti.Rtt) * int64(time.Microsecond),
		MinRTTNS:         minRTT(ti.Min_rtt),
		BusyNS:           max(0, int64(ti.Busy_time)-int64(ti.Rwnd_limited)) * int64(time.Microsecond),
		Sent:             ti.Bytes_acked,
		Received:         ti.Bytes_received,
	}, ti.Unacked == 0
}

// minRTT is 0 where the kernel has measured none, for which it says ~0.
func minRTT(us uint32) int64 {
	if us == math.MaxUint32 {
		return 0
	}
	return int64(us) * int64(time.Microsecond)
}

// local is the socket's own address, which a connect that is still under way has
// as well.
func (a *account) local() netip.AddrPort {
	if a.fd < 0 {
		return netip.AddrPort{}
	}
	sa, err := unix.Getsockname(a.fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr).Unmap(), uint16(sa.Port))
	}
	return netip.AddrPort{}
}

func (a *account) close() {
	if a.fd >= 0 {
		_ = unix.Close(a.fd) // the descriptor is gone either way
		a.fd = -1
	}
}
