//go:build !linux

package probe

import (
	"net/netip"
	"syscall"
)

// account has no account to give where there is no TCP_INFO of Linux.
type account struct{}

func newAccount() account { return account{} }

func (*account) control(_, _ string, _ syscall.RawConn) error { return nil }
func (*account) info() (*TCPInfo, bool)                       { return nil, false }
func (*account) local() netip.AddrPort                        { return netip.AddrPort{} }
func (*account) close()                                       {}

func tcpInfo(int) (*TCPInfo, bool) { return nil, false }

func socketSettings(int) *SocketSettings { return nil }
