package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
)

// ErrOneConnection refuses a second connection within one call: nothing in the
// sample would stand for it.
var ErrOneConnection = errors.New("a call makes one connection only")

// Socket makes one TCP connection and keeps account of it: of one call, or of many that
// use it one after the other. TCP keep-alive and multipath TCP are off. Make one with
// NewSocket; it is not safe for concurrent use, but for a late Dial that is to be
// refused, and but for Share.
type Socket struct {
	account       account
	dialed        bool
	conn          *conn
	local, remote netip.AddrPort
	connectNS     int64
	settings      atomic.Pointer[SocketSettings]
	// reused and the counts are of the call under way, where earlier ones used the
	// connection.
	reused bool
	before TCPInfo
	turns  int
	// ended is what the last call ended with; quiet, that nothing can have changed since.
	ended TCPInfo
	quiet bool
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
	s.account.close() // what is connected gives its own account until it is closed
	s.local, s.remote = addrPort(c.LocalAddr()), addrPort(c.RemoteAddr())
	s.conn = &conn{Conn: c}
	s.settings.Store(s.conn.settings())
	return s.conn, nil
}

// Conn is the connection; nil when there is none.
func (s *Socket) Conn() net.Conn {
	if s.conn == nil {
		return nil
	}
	return s.conn
}

// Made is what the connection was made with, for the first who asks, so that it is counted
// once; nil for all others and without a connection. It is safe for concurrent use.
func (s *Socket) Made() *SocketSettings { return s.settings.Swap(nil) }

// ConnectNS is how long the handshake took; 0 if it did not end.
func (s *Socket) ConnectNS() int64 { return s.connectNS }

// Begin says that a call begins on a connection that an earlier one has used: what
// Record writes is of this call alone, and without the handshake.
func (s *Socket) Begin() {
	s.reused = true
	s.turns = s.totalTurns()
	s.before = TCPInfo{}
	if s.quiet {
		s.before, s.quiet = s.ended, false
	} else if info := s.Info(); info != nil {
		s.before = *info
	}
}

// Turns is how often the call that is under way has waited for an answer of the peer:
// data came after data was sent.
func (s *Socket) Turns() int { return s.totalTurns() - s.turns }

func (s *Socket) totalTurns() int {
	if s.conn == nil {
		return 0
	}
	return int(s.conn.turns.Load())
}

// Share is Record for a call on a connection that other calls use at the same time. What
// the kernel counted is the connection's since before, which an Info at the call's start
// gave; turns are nobody's.
func (s *Socket) Share(to *Sample, before *TCPInfo) {
	to.Local, to.Remote, to.Reused = s.local, s.remote, true
	to.Info = s.Info()
	if to.Info != nil {
		if before != nil {
			to.Info.since(*before)
		}
		to.Info.BusyNS = 0
	}
}

// Info is what the kernel says of the connection now, or said when it was closed; nil
// without one.
func (s *Socket) Info() *TCPInfo {
	info, _ := s.info()
	return info
}

func (s *Socket) info() (info *TCPInfo, quiet bool) {
	if s.conn == nil {
		return s.account.info()
	}
	return s.conn.info()
}

// Record writes what is known of the connection into the sample and gives the
// account of a connect that failed back; without a Record the kernel keeps that
// socket. Remote stays as it is where there was no connection.
func (s *Socket) Record(to *Sample) {
	to.Info, s.quiet = s.info()
	to.Local, to.Turns = s.local, s.Turns()
	if to.Info != nil {
		s.ended = *to.Info
	}
	if s.conn != nil {
		to.Remote = s.remote
	}
	if to.Reused = s.reused; s.reused {
		if to.Info != nil {
			to.Info.since(s.before)
		}
	} else {
		to.ConnectNS = s.connectNS
		to.Made = s.Made()
	}
	s.account.close()
}

// since leaves the counts of a call that began with these.
func (i *TCPInfo) since(before TCPInfo) {
	i.TotalRetransmits -= before.TotalRetransmits
	i.TotalRTO -= before.TotalRTO
	i.BusyNS -= min(before.BusyNS, i.BusyNS)
	i.Sent -= min(before.Sent, i.Sent)
	i.Received -= min(before.Received, i.Received)
}

func addrPort(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
