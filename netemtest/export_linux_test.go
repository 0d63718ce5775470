package netemtest

import "errors"

// CloseSessions ends all sessions that there are.
func CloseSessions() error {
	var errs []error
	for {
		sessionsMu.Lock()
		n := len(sessions)
		if n == 0 {
			sessionsMu.Unlock()
			return errors.Join(errs...)
		}
		s := sessions[n-1]
		sessionsMu.Unlock()
		errs = append(errs, s.Close())
	}
}

// WatcherPID is the process that watches over this one's agent or labs, 0 without.
func WatcherPID() int {
	sessionsMu.Lock()
	defer sessionsMu.Unlock()
	for _, s := range sessions {
		if s.ledger != nil {
			return s.ledger.watcher.process.PID
		}
	}
	if own == nil {
		return 0
	}
	return own.watcher.process.PID
}
