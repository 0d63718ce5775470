package cli

import "io"

// sink is standard output for what netemctl itself says there. It remembers why something
// could not be written, since what prints tables and help does not look, and tells it once.
type sink struct {
	w      io.Writer
	err    error
	failed func()
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	if err != nil && s.err == nil {
		s.err = err
		s.failed()
	}
	return n, err
}
