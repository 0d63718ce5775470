package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// ProtocolError says that the peer's bytes were not what the protocol allows.
type ProtocolError struct{ Err error }

// Error keeps the client's own words.
func (e *ProtocolError) Error() string { return e.Err.Error() }

// Unwrap gives the client's own error.
func (e *ProtocolError) Unwrap() error { return e.Err }

// Classify says what ended a call, from the error that its client returned. Time
// that ran out comes first, since a client that is interrupted reports its closed
// socket too.
func Classify(err error) Class {
	switch {
	case err == nil:
		return OK
	case timedOut(err):
		return Timeout
	case is[*pgconn.PgError](err):
		return Server
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return EOF
	case is[*ProtocolError](err), is[*pgproto3.ExceededMaxBodyLenErr](err):
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

// fromTransport reports that err came from the socket or the context and not from
// what the peer said.
func fromTransport(err error) bool {
	return timedOut(err) || errors.Is(err, context.Canceled) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || is[*net.OpError](err)
}
