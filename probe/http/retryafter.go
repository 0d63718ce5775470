package http

import (
	"net/http"
	"strconv"
	"time"
)

// furthest bounds what a server's word is taken for: more is as long as for ever.
const furthest = 10 * 365 * 24 * time.Hour

// retryAfter is the pause that the server asks for (RFC 9110, 10.2.3): seconds, or a date,
// which is taken by the server's own clock where the answer says that, and else by ours. 0:
// none, one that is over, or one that is not understood.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := h.Get("Retry-After")
	if text == "" {
		return 0
	}
	if n, err := strconv.ParseUint(text, 10, 63); err == nil {
		return time.Duration(min(n, uint64(furthest/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), furthest)
}
