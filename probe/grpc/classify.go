package grpc

import (
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"netemd/probe"
)

// told gives an error its class. A status may be the server's own word, which came in a
// trailer, or the library's: then what happened to the connection says which.
func told(err error, t *times, l *link) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	if !ok {
		return err // one of ours
	}
	return &probe.ClassError{Class: class(s, t.trailer, t.header != 0, l), Err: err}
}

func class(s *status.Status, trailer, sent bool, l *link) probe.Class {
	words := s.Message()
	switch {
	case s.Code() == codes.DeadlineExceeded:
		return probe.Timeout
	case trailer:
		return probe.Server
	case s.Code() == codes.Canceled && !strings.Contains(words, "RST_STREAM"):
		return probe.Other
	case strings.Contains(words, "RST_STREAM"):
		return probe.Reset
	case strings.Contains(words, "keepalive ping failed"):
		return probe.Timeout
	case strings.Contains(words, "unexpected HTTP status code"):
		return probe.Server // somebody's on the way that speaks HTTP only
	}
	if c := l.class(); c != probe.Other {
		return c
	}
	switch {
	// of a try before the one that was looked at, which had not ended when the call did
	case !sent && strings.Contains(words, syscall.ECONNREFUSED.Error()):
		return probe.Refused
	case !sent && strings.Contains(words, syscall.ECONNRESET.Error()):
		return probe.Reset
	case strings.Contains(words, "GOAWAY"), strings.Contains(words, "transport is closing"), strings.Contains(words, "EOF"):
		return probe.EOF
	case s.Code() == codes.Internal, s.Code() == codes.Unknown, s.Code() == codes.ResourceExhausted,
		strings.Contains(words, "frame too large"), strings.Contains(words, "server preface"):
		return probe.Protocol
	case s.Code() == codes.Unavailable && sent:
		return probe.EOF // the connection went, and nobody said how
	}
	return probe.Other
}
