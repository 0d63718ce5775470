package fault

import "errors"

// hinted is an error with something to do about it.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }
func (h hinted) Hint() string  { return h.hint }

// WithHint adds to err what can be done about it, which only a command line prints. It
// returns err itself when that is nil or has a hint, and for an empty hint.
func WithHint(err error, hint string) error {
	if err == nil || hint == "" || HintOf(err) != "" {
		return err
	}
	return hinted{err, hint}
}

// HintOf is what can be done about err, empty when it says nothing. Errors with a method
// Hint() string say so, wherever they come from.
func HintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}
