package netemtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
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
// a testing.TB stand on, for TestMain and for programs that are no tests. It is safe for
// concurrent use.
type Session struct {
	client *client.Client
	agent  *ownAgent // nil where another process is the agent
	// tag is part of the names of this session's labs, so that no two processes meet.
	tag string

	mu     sync.Mutex
	count  int
	labs   []*Network // shared by all tests, the newest last
	faults map[*Injection]bool
	closed bool
}

// The session that all tests of this process use: the one that Start made, or one that the
// first test made and that lives as long as the process.
var (
	current   *Session
	currentMu sync.Mutex
)

// Start connects to an agent, or makes this process one, and has all tests of this process use
// it until Close. It is for TestMain; a test needs none. The error matches errors.ErrUnsupported
// where this machine cannot do it, and fs.ErrPermission without root.
func Start(ctx context.Context, c Config) (*Session, error) {
	currentMu.Lock()
	defer currentMu.Unlock()
	if current != nil {
		return nil, errors.New("netemtest start: this process has a session already; close it first")
	}
	s, err := open(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("netemtest start: %w", err)
	}
	current = s
	return s, nil
}

// session is the one that tests use.
func session(ctx context.Context) (*Session, error) {
	currentMu.Lock()
	defer currentMu.Unlock()
	if current != nil {
		return current, nil
	}
	s, err := open(ctx, Config{})
	if err == nil {
		current = s
	}
	return s, err
}

func open(ctx context.Context, c Config) (*Session, error) {
	s := &Session{tag: strings.ToLower(rand.Text()[:4]), faults: map[*Injection]bool{}}
	at := client.Endpoint{Socket: c.Socket}
	asked := at.Socket != ""
	if !asked && !c.Own {
		at.Socket = os.Getenv("NETEMD_SOCKET")
		asked = at.Socket != ""
	}
	var err error
	if !c.Own {
		s.client, err = client.Open(at)
		if err == nil || asked || !errors.Is(err, client.ErrUnreachable) {
			return s, err
		}
	}
	if s.agent, err = startOwn(ctx); err != nil {
		return nil, err
	}
	if s.client, err = client.Open(client.Endpoint{Socket: s.agent.socket}); err != nil {
		return nil, errors.Join(err, s.agent.close(ctx))
	}
	if err := s.able(ctx); err != nil {
		return nil, errors.Join(err, s.client.Close(), s.agent.close(ctx))
	}
	return s, nil
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
// process. It goes on after an error and returns them all. A second Close does nothing.
func (s *Session) Close() error {
	currentMu.Lock()
	if current == s {
		current = nil
	}
	currentMu.Unlock()
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
	errs = append(errs, s.client.Close())
	if s.agent != nil {
		errs = append(errs, s.agent.close(ctx))
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
	for i := len(s.labs) - 1; i >= 0; i-- {
		if full, ok := s.labs[i].targetName(target); ok {
			return full
		}
	}
	return target
}
