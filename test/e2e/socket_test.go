package e2e

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// reusePort lets several sockets have one port.
func reusePort(_, _ string, c syscall.RawConn) error {
	var err error
	cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	if cerr != nil {
		return cerr
	}
	return err
}
