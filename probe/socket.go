package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// ErrOneConnection refuses a second connection within one call: nothing in the
// sample would stand for it.
var ErrOneConnection = errors.New("a call makes one connection only")

// Socket makes the one TCP connection of a call and keeps account of it. TCP
// keep-alive and multipath TCP are off. Make one with NewSocket for each call; it
// is not safe for concurrent use, but for a late Dial that is to be refused.
type Socket struct {
	account       account
	dialed        bool
	conn          net.Conn
	local, remote netip.AddrPort
	connectNS     int64
}

// NewSocket returns a Socket that has not dialed.
func NewSocket() *Socket { return &Socket{account: newAccount()} }

// Dial connects; it has the form of net.Dialer.DialContext. The address is an IP
// address and a port, so that all of it happens on the caller's own thread.
func (s *Socket) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	if s.dialed {
		return nil, ErrOneConnection
	}
	s.dialed = true
	d := net.Dialer{Control: s.account.control, KeepAlive: -1}
	d.SetMultipathTCP(false)
	at := Now()
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		s.local = s.account.local()
		return nil, err
	}
	s.connectNS = Now() - at
	s.local, s.remote = addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	s.conn = c
	return c, nil
}

// Conn is the connection; nil when there is none.
func (s *Socket) Conn() net.Conn { return s.conn }

// Record writes what is known of the connection into the sample and gives the
// account back; without a Record the kernel keeps the socket. Remote stays as it is
// where there was no connection.
func (s *Socket) Record(to *Sample) {
	to.Local, to.ConnectNS, to.Info = s.local, s.connectNS, s.account.info()
	if s.conn != nil {
		to.Remote = s.remote
	}
	s.account.close()
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
