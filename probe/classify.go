package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// ProtocolError says that the peer's bytes were not what the protocol allows.
type ProtocolError struct{ Err error }

// Error keeps the client's own words.
func (e *ProtocolError) Error() string { return e.Err.Error() }

// Unwrap gives the client's own error.
func (e *ProtocolError) Unwrap() error { return e.Err }

// ClassError says what class an error is of, where a client's library does not tell by
// an error that Classify knows.
type ClassError struct {
	Class Class
	Err   error
}

// Error keeps the client's own words.
func (e *ClassError) Error() string { return e.Err.Error() }

// Unwrap gives the client's own error.
func (e *ClassError) Unwrap() error { return e.Err }

// serverError is the server's own refusal, as PostgreSQL clients report it.
type serverError interface {
	error
	SQLState() string
}

// Classify says what ended a call, from the error that its client returned. Time
// that ran out comes first, since a client that is interrupted reports its closed
// socket too.
func Classify(err error) Class {
	if told, ok := errors.AsType[*ClassError](err); ok {
		return told.Class
	}
	switch {
	case err == nil:
		return OK
	case timedOut(err):
		return Timeout
	case is[serverError](err):
		return Server
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return EOF
	case is[*ProtocolError](err):
		return Protocol
	}
	return Other
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// timedOut finds a deadline of the context or the socket, and the kernel's own
// ETIMEDOUT, in any of the wrappings that clients use.
func timedOut(err error) bool {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT) {
		return true
	}
	n, ok := errors.AsType[net.Error](err)
	return ok && n.Timeout()
}
