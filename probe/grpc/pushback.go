package grpc

import (
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"

	"netemd/probe"
)

// pushbackKey is of gRFC A6 ("Pushback"), in milliseconds.
const pushbackKey = "grpc-retry-pushback-ms"

// pushback is the pause that the server asks for in its trailer: probe.NoRetry for a number
// below 0, and for what is no number, as the gRFC says; 0 for none.
func pushback(trailer metadata.MD) int64 {
	values := trailer.Get(pushbackKey)
	if len(values) == 0 {
		return 0
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || ms < 0 || len(values) > 1 {
		return probe.NoRetry
	}
	return ms * int64(time.Millisecond)
}
