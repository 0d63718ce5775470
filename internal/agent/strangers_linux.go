package agent

import (
	"fmt"
	"net"
	"sync"

	"netemd/internal/access"
	"netemd/internal/fault"
)

// maxStrangers is how many connections of peers without any right are open at once. They
// are listened to so that they can be told, and so that the attempt is written down; more
// of them could use up what the others need.
const maxStrangers = 16

// strangers lets peers without any right in, a few at a time. It is safe for concurrent
// use.
type strangers struct {
	policy *access.Policy

	mu sync.Mutex
	n  int
}

// admit returns the connection, counted until it is closed where its peer may do nothing.
func (s *strangers) admit(conn net.Conn, info peerInfo) (net.Conn, error) {
	if s.policy.Known(info.access()) {
		return conn, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= maxStrangers {
		return conn, fmt.Errorf("%w: %s, who may do nothing here, and %d connections of such are open already", fault.ErrDenied, info.owner, s.n)
	}
	s.n++
	return &counted{Conn: conn, done: sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.n--
	})}, nil
}

// counted is a connection whose end is noticed.
type counted struct {
	net.Conn
	done func()
}

func (c *counted) Close() error {
	c.done()
	return c.Conn.Close()
}
