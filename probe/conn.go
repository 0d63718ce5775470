package probe

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// conn counts how often its user waits for the peer, and keeps the kernel's last word
// of the connection, also when a client's library closes it.
type conn struct {
	net.Conn
	// asked says that something was sent since the last answer.
	asked atomic.Bool
	turns atomic.Int32

	closing sync.Once
	mu      sync.Mutex
	last    *TCPInfo
	closed  error
}

func (c *conn) Write(b []byte) (int, error) {
	c.asked.Store(true) // before, since the answer may be read before Write returns
	return c.Conn.Write(b)
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.asked.Load() && c.asked.Swap(false) {
		c.turns.Add(1)
	}
	return n, err
}

func (c *conn) Close() error {
	c.closing.Do(func() {
		last, _ := c.ask()
		c.mu.Lock()
		c.last = last
		c.mu.Unlock()
		c.closed = c.Conn.Close()
	})
	return c.closed
}

// SyscallConn is the socket's, for those who set options.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	s, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return s.SyscallConn()
}

// info is a copy that the caller may change. quiet says that the peer had acknowledged
// everything: what is counted in it stays as it is until something is sent.
func (c *conn) info() (info *TCPInfo, quiet bool) {
	if now, quiet := c.ask(); now != nil {
		return now, quiet
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return nil, false
	}
	last := *c.last
	return &last, true
}

// settings are those of an open connection; nil when it does not tell.
func (c *conn) settings() (s *SocketSettings) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) { s = socketSettings(int(fd)) }) // a closed one has none
	return s
}

// ask reads TCP_INFO of an open connection.
func (c *conn) ask() (info *TCPInfo, quiet bool) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, false
	}
	_ = raw.Control(func(fd uintptr) { info, quiet = tcpInfo(int(fd)) }) // a closed one has none
	return info, quiet
}
