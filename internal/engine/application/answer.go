package application

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"netemd/internal/fault"
)

// FaultHeader tells the id of the fault in an answer that is one; in gRPC it is metadata.
const FaultHeader = "Netemd-Fault"

// answerFault answers with x's error.
func answerFault(w http.ResponseWriter, r *http.Request, x *rule) {
	q := x.Request
	w.Header().Set(FaultHeader, x.ID)
	if isCall(r) && q.Code != "" {
		if q.Pushback > 0 { // gRFC A6
			w.Header().Set("Grpc-Retry-Pushback-Ms", strconv.FormatInt(q.Pushback.Milliseconds(), 10))
		}
		answerCall(w, r, slices.Index(fault.Codes, q.Code)+1, "fault "+x.ID+" of netemd")
		return
	}
	if q.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatInt(int64(q.RetryAfter/time.Second), 10))
	}
	answerText(w, q.Status, fmt.Sprintf("%d %s: fault %s of netemd\n", q.Status, http.StatusText(q.Status), x.ID))
}

func answerText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // a client that has gone is nobody to tell
}

// answerCall ends a call by headers alone ("Trailers-Only" in gRPC's PROTOCOL-HTTP2.md).
func answerCall(w http.ResponseWriter, r *http.Request, code int, message string) {
	h := w.Header()
	h.Set("Content-Type", r.Header.Get("Content-Type"))
	h.Set("Grpc-Status", strconv.Itoa(code))
	h.Set("Grpc-Message", percentEncoded(message))
	h["Content-Length"] = nil // none is added
	w.WriteHeader(http.StatusOK)
}

// percentEncoded is the form of grpc-message.
func percentEncoded(s string) string {
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c >= ' ' && c <= '~' && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// abort resets a request before any answer: the connection by HTTP/1.1, its stream by HTTP/2.
func abort(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			if tcp, ok := c.(interface{ SetLinger(int) error }); ok {
				_ = tcp.SetLinger(0) // closed by a reset
			}
			_ = c.Close()
			return
		}
	}
	panic(http.ErrAbortHandler)
}
