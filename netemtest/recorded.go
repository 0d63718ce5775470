package netemtest

import (
	"context"
	"errors"
)

// recorded calls up, which has a running agent make a lab, with the lab in this process's
// ledger. An agent in the process itself needs none: its watcher clears all that it made.
func (s *Session) recorded(ctx context.Context, name string, up func() error) error {
	if s.agent != nil {
		return up()
	}
	s.ledgerMu.Lock()
	var err error
	if s.ledger == nil {
		s.ledger, err = openLedger(ctx, s.socket)
	}
	if err == nil {
		err = s.ledger.note(name)
	}
	s.ledgerMu.Unlock()
	if err != nil {
		return err
	}
	if err := up(); err != nil {
		return errors.Join(err, s.struck(name))
	}
	return nil
}

// struck takes a lab off the ledger, which is down or did not come up.
func (s *Session) struck(name string) error {
	s.ledgerMu.Lock()
	defer s.ledgerMu.Unlock()
	if s.ledger == nil {
		return nil
	}
	return s.ledger.strike(name)
}

// closeLedger has nobody watch any more.
func (s *Session) closeLedger() error {
	s.ledgerMu.Lock()
	defer s.ledgerMu.Unlock()
	if s.ledger == nil {
		return nil
	}
	l := s.ledger
	s.ledger = nil
	return l.close()
}
