package netemtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"netemd/internal/client"
	"netemd/internal/fault"
)

// Config is where a Session's agent is. The zero value means what the package's
// documentation says: one that runs already, else the own process.
type Config struct {
	// Socket is the unix socket of a running agent; empty means NETEMD_SOCKET, and without
	// that the agent at /run/netemd/netemd.sock if one answers there.
	Socket string
	// Own makes this process the agent, whatever runs already.
	Own bool
}

// Session is a connection to an agent, and what was made by it. It is what the functions with
// a testing.TB stand on, for TestMain, examples and programs that are no tests. It is safe for
// concurrent use.
type Session struct {
	client *client.Client
	agent  *ownAgent // nil where another process is the agent
	// tag is part of the names of this session's labs, so that no two meet.
	tag string

	mu     sync.Mutex
	count  int
	labs   []*Network // shared by all tests, the newest last
	faults map[*Injection]bool
	closed bool

	// socket is that of an agent in another process, and ledger the labs that it keeps for
	// this session; nil before the first.
	socket   string
	ledgerMu sync.Mutex
	ledger   *ledger
}

// The sessions of this process, the newest last: that one is what tests use. The first test
// makes one that lives as long as the process, if there is none.
var (
	sessions   []*Session
	sessionsMu sync.Mutex
)

// Start connects to an agent, or makes this process one, and has all tests of this process use
// it until Close. It is for TestMain, which may bring labs up that all tests share, and for
// examples; a test needs none. The error matches errors.ErrUnsupported where this machine cannot
// do it, and fs.ErrPermission without root.
func Start(ctx context.Context, c Config) (*Session, error) {
	sessionsMu.Lock()
	defer sessionsMu.Unlock()
	s, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("netemtest start: %w", err)
	}
	return s, nil
}

// session is the one that tests use.
func session(ctx context.Context) (*Session, error) {
	sessionsMu.Lock()
	defer sessionsMu.Unlock()
	if n := len(sessions); n > 0 {
		return sessions[n-1], nil
	}
	return open(ctx, Config{})
}

// open makes a session. The caller holds the lock.
func open(ctx context.Context, c Config) (*Session, error) {
	s := &Session{tag: strings.ToLower(rand.Text()[:tagLength]), faults: map[*Injection]bool{}}
	if err := s.connect(ctx, c); err != nil {
		return nil, err
	}
	sessions = append(sessions, s)
	return s, nil
}

// tagLength has a million tags: two sessions at a time have the same one rarely enough, and
// then a lab that is there already is refused.
const tagLength = 4

func (s *Session) connect(ctx context.Context, c Config) error {
	at := client.Endpoint{Socket: c.Socket}
	if at.Socket == "" && !c.Own {
		at.Socket = os.Getenv("NETEMD_SOCKET")
	}
	s.socket = at.Socket
	var err error
	if !c.Own {
		s.client, err = client.Open(at)
		if err == nil || at.Socket != "" || !errors.Is(err, client.ErrUnreachable) {
			return err
		}
	}
	if s.agent, err = useOwn(ctx); err != nil {
		return err
	}
	if s.client, err = client.Open(client.Endpoint{Socket: s.agent.socket}); err != nil {
		return errors.Join(err, s.agent.leave(ctx))
	}
	if err := s.able(ctx); err != nil {
		return errors.Join(err, s.client.Close(), s.agent.leave(ctx))
	}
	return nil
}

// able is an error where the kernel can carry no packet fault, with what trying it gave.
func (s *Session) able(ctx context.Context) error {
	r, err := s.client.Features(ctx)
	if err != nil || r.Auto != "" {
		return err
	}
	return fmt.Errorf("this kernel (%s) can carry no packet fault: %s: %w", r.Kernel, missing(r), errors.ErrUnsupported)
}

// Close ends the session's faults, takes its labs down, and stops the agent if it is this
// process and no other session uses it. It goes on after an error and returns them all. A second Close does nothing.
func (s *Session) Close() error {
	sessionsMu.Lock()
	defer sessionsMu.Unlock()
	sessions = slices.DeleteFunc(sessions, func(o *Session) bool { return o == s })
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	labs, faults := s.labs, s.faults
	s.labs, s.faults = nil, map[*Injection]bool{}
	s.mu.Unlock()
	if closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), endTime)
	defer cancel()
	var errs []error
	for f := range faults {
		errs = append(errs, f.Clear(ctx))
	}
	for _, n := range labs {
		errs = append(errs, n.down(ctx))
	}
	errs = append(errs, s.client.Close(), s.closeLedger())
	if s.agent != nil {
		errs = append(errs, s.agent.leave(ctx))
	}
	return errors.Join(errs...)
}

// Lab brings a copy of a lab up that lives until Close, for all tests: what Lab says of what
// goes for it. Faults of several tests at its targets stand one after the other.
func (s *Session) Lab(ctx context.Context, what string) (*Network, error) {
	n, err := s.up(ctx, what, "")
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.labs = append(s.labs, n)
	return n, nil
}

// Inject makes a fault that stands until Clear or Close. A target's name is first looked for in
// the session's labs. ctx bounds the waiting for faults of others at the same target, as long as
// its deadline is away; without one nothing is waited for.
func (s *Session) Inject(ctx context.Context, spec Spec) (*Injection, error) {
	spec.Target = s.fullName(spec.Target)
	return s.inject(ctx, spec, fault.Spec{}, nil)
}

// fullName is the name by which the agent knows a target of the session's labs.
func (s *Session) fullName(target string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range slices.Backward(s.labs) {
		if full, ok := n.targetName(target); ok {
			return full
		}
	}
	return target
}
