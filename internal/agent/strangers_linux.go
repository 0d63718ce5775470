package agent

import (
	"fmt"
	"net"
	"sync"
	"time"

	"netemd/internal/access"
	"netemd/internal/fault"
)

// Peers without any right are listened to so that they can be told, and so that the attempt
// is written down; more of them, or for longer, could use up what the others need.
const (
	// maxStrangers is how many connections of such peers are open at once, and maxOfStranger
	// how many of one of them.
	maxStrangers  = 32
	maxOfStranger = 4
	// strangerTime is how long such a connection may last: to be told takes a moment.
	strangerTime = 10 * time.Second
)

// strangers lets peers without any right in, a few at a time. It is safe for concurrent
// use.
type strangers struct {
	policy *access.Policy

	mu sync.Mutex
	n  int
	of map[string]int
}

// admit returns the connection, counted until it is closed where its peer may do nothing.
func (s *strangers) admit(conn net.Conn, info peerInfo) (net.Conn, error) {
	if s.policy.Known(info.access()) {
		return conn, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch who := info.owner; {
	case s.of[who] >= maxOfStranger:
		return conn, fmt.Errorf("%w: %s, who may do nothing here, and has %d connections already", fault.ErrDenied, who, s.of[who])
	case s.n >= maxStrangers:
		return conn, fmt.Errorf("%w: %s, who may do nothing here, and %d connections of such are open already", fault.ErrDenied, who, s.n)
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.n++
	s.of[info.owner]++
	c := &counted{Conn: conn}
	var ends *time.Timer
	c.done = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		ends.Stop()
		s.n--
		if s.of[info.owner]--; s.of[info.owner] == 0 {
			delete(s.of, info.owner)
		}
	})
	ends = time.AfterFunc(strangerTime, func() { _ = c.Close() })
	return c, nil
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
