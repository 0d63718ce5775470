//go:build !linux

package probe

import (
	"net/netip"
	"syscall"
)

// socket has no account to give where there is no TCP_INFO of Linux.
type socket struct{}

func newSocket() *socket { return &socket{} }

func (*socket) control(_, _ string, _ syscall.RawConn) error { return nil }
func (*socket) info() *TCPInfo                               { return nil }
func (*socket) local() netip.AddrPort                        { return netip.AddrPort{} }
func (*socket) close()                                       {}
