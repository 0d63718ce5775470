package agent

import (
	"fmt"
	"net"
	"sync"
	"time"

	"netemd/internal/access"
	"netemd/internal/fault"
)

// How many connections of a peer are open at once: each is a descriptor and some memory, which
// one peer must not take from the others. Root has no limit.
const (
	maxOfUser        = 256
	maxOfCertificate = maxTCP / 4
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

// admission counts the connections of each peer. It is safe for concurrent use.
type admission struct {
	policy *access.Policy

	mu        sync.Mutex
	of        map[string]int
	strangers int
}

// admit returns the connection, counted until it is closed.
func (s *admission) admit(conn net.Conn, info peerInfo) (net.Conn, error) {
	if info.root() {
		return conn, nil
	}
	known := s.policy.Known(info.access())
	if err := s.enter(info, known); err != nil {
		return conn, err
	}
	c := &counted{Conn: conn, done: sync.OnceFunc(func() { s.leave(info.owner, known) })}
	if known {
		return c, nil
	}
	ends := time.AfterFunc(strangerTime, func() { _ = c.Close() }) // its reader closes the rest
	return &counted{Conn: c, done: func() { ends.Stop() }}, nil
}

func (s *admission) enter(info peerInfo, known bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.of[info.owner]
	switch {
	case !known && n >= maxOfStranger:
		return fmt.Errorf("%w: %s, who may do nothing here, and has %d connections already", fault.ErrDenied, info.owner, n)
	case !known && s.strangers >= maxStrangers:
		return fmt.Errorf("%w: %s, who may do nothing here, and %d connections of such are open already", fault.ErrDenied, info.owner, s.strangers)
	case info.byTLS() && n >= maxOfCertificate, n >= maxOfUser:
		return fmt.Errorf("%w: %s has %d connections, which is the most of one peer", fault.ErrBusy, info.owner, n)
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.of[info.owner]++
	if !known {
		s.strangers++
	}
	return nil
}

func (s *admission) leave(who string, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[who]--; s.of[who] == 0 {
		delete(s.of, who)
	}
	if !known {
		s.strangers--
	}
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
