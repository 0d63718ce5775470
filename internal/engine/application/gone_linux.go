package application

import (
	"net"

	"golang.org/x/sys/unix"
)

// established is TCP_ESTABLISHED of include/net/tcp_states.h.
const established = 1

// hasGone reports whether the other end has closed or reset the connection, also where data of
// it has not been read yet.
func hasGone(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		gone = err == nil && info.State != established
	})
	return gone || err != nil
}
