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
