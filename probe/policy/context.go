package policy

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"
)

// The names under which a client tells its peer what the context says, in HTTP and as
// metadata of gRPC.
const (
	// HeaderTimeout is the time that is left of the deadline, in the form of GRPCTimeout.
	// gRPC sends it by itself, from the context's deadline, whether a policy passes one or
	// not; HTTP has no standard one, and Envoy's filters know this one. Time that is
	// left, and not a time of day, since two machines' clocks differ.
	HeaderTimeout = "Grpc-Timeout"
	// HeaderIdempotencyKey is of draft-ietf-httpapi-idempotency-key-header.
	HeaderIdempotencyKey = "Idempotency-Key"
	// HeaderIdempotencyReplay is "true" in an answer that an earlier request with the same
	// key had: nothing was done again. The draft has no name for it; several services say it so.
	HeaderIdempotencyReplay = "X-Idempotency-Replay"
	// HeaderDegraded names the parts of an answer in whose place a fallback stood, as in
	// "stock=default". There is no standard one.
	HeaderDegraded = "X-Degraded"
)

type contextKey struct{}

// passed is what an attempt's context says.
type passed struct {
	attempt  int
	key      string
	deadline time.Time
}

func passedBy(ctx context.Context) passed {
	p, _ := ctx.Value(contextKey{}).(passed)
	return p
}

// Attempt is the number of the attempt within its call, from 1, hedges included; 0 outside
// of a policy.
func Attempt(ctx context.Context) int { return passedBy(ctx).attempt }

// IdempotencyKey is what the attempt shall send as its key; empty without an Idempotency.
func IdempotencyKey(ctx context.Context) string { return passedBy(ctx).key }

// DeadlineOf is until when somebody waits for the answer, which the attempt shall tell its
// peer (HeaderTimeout, as GRPCTimeout of the time that is left); false without a Deadline,
// and where nothing bounds the call. It is not what ends the attempt: that is the context's
// own deadline.
func DeadlineOf(ctx context.Context) (time.Time, bool) {
	p := passedBy(ctx)
	return p.deadline, !p.deadline.IsZero()
}

// GRPCTimeout is a duration as gRPC sends it: at most 8 digits and a unit, rounded up, so
// that the peer never gives up first ("gRPC over HTTP2", TimeoutValue). What is not above
// 0 is "0n".
func GRPCTimeout(d time.Duration) string {
	if d <= 0 {
		return "0n"
	}
	const most = 99_999_999
	for _, unit := range []struct {
		size time.Duration
		name string
	}{{1, "n"}, {time.Microsecond, "u"}, {time.Millisecond, "m"}, {time.Second, "S"}} {
		if n := (d-1)/unit.size + 1; n <= most {
			return strconv.FormatInt(int64(n), 10) + unit.name
		}
	}
	return strconv.FormatInt(int64((d-1)/time.Hour+1), 10) + "H"
}

// newKey is a random UUID, version 4 (RFC 9562, section 5.4).
func newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: the program ends instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
