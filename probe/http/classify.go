package http

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"netemd/probe"
)

// statusError is an answer that says no.
type statusError struct{ code int }

func (e *statusError) Error() string {
	return fmt.Sprintf("http: status %d %s", e.code, http.StatusText(e.code))
}

func isStatus(err error) bool {
	_, ok := errors.AsType[*statusError](err)
	return ok
}

// streamError has the form of HTTP/2's, which the library converts to it.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (e streamError) Error() string { return fmt.Sprintf("stream error %d", e.Code) }

// Codes of RFC 9113, 7, that say that the other side was not understood.
var misunderstandings = map[uint32]bool{1: true, 3: true, 4: true, 5: true, 6: true, 9: true}

// classify says what ended a call; connected, that there was a server; ended, what the
// connection's own end was. What the library tells by words alone is told by them.
func classify(err error, connected bool, ended error) probe.Class {
	if err == nil {
		return probe.OK
	}
	if isStatus(err) {
		return probe.Server
	}
	var stream streamError
	if probe.Classify(err) != probe.Timeout && errors.As(err, &stream) {
		if misunderstandings[stream.Code] {
			return probe.Protocol
		}
		return probe.Reset // RST_STREAM
	}
	if c := probe.Classify(err); c != probe.Other {
		return c
	}
	for _, w := range []struct {
		words string
		class probe.Class
	}{
		{"client connection lost", probe.Timeout}, // no answer to a ping
		{"GOAWAY", probe.EOF},
		{"server closed idle connection", probe.EOF},
		{"connection not usable", probe.EOF},
		{"unexpected EOF", probe.EOF},
	} {
		if strings.Contains(err.Error(), w.words) {
			return w.class
		}
	}
	if c := probe.Classify(ended); c == probe.EOF || c == probe.Reset {
		return c
	}
	_, network := errors.AsType[*net.OpError](err)
	if connected && !network && !errors.Is(err, context.Canceled) && !errors.Is(err, net.ErrClosed) {
		return probe.Protocol // it was not the network, so what came was not understood
	}
	return probe.Other
}
