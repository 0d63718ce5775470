package netemtest

// CloseSession ends the session that the tests use, if there is one.
func CloseSession() error {
	currentMu.Lock()
	s := current
	currentMu.Unlock()
	if s == nil {
		return nil
	}
	return s.Close()
}

// WatcherPID is the process that watches over this one's agent, 0 without.
func WatcherPID() int {
	currentMu.Lock()
	defer currentMu.Unlock()
	if current == nil || current.agent == nil {
		return 0
	}
	return current.agent.watcher.process.PID
}
