package fault

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"netemd/qdisc"
)

// Request is what an application fault does to the requests that pass the target's
// http-proxy. The unit is a request of HTTP/1.1 or a stream of HTTP/2, and not a connection. The
// shares exclude one another: one draw decides what becomes of a request.
type Request struct {
	// Error is the share that is answered with an error, Delay the one that is held before
	// it goes on, Abort the one that is reset before any answer: the connection of an HTTP/1.1
	// request, the stream of an HTTP/2 one. Each is 0..100 %, together at most 100 % and not 0.
	Error, Delay, Abort qdisc.Percent
	// Status answers an Error of HTTP, 400..599; 0: none. Code answers one of gRPC, by the
	// name of a status code, such as UNAVAILABLE; empty: none. With a Code alone nothing but
	// gRPC calls is selected; with a Status alone gRPC calls are answered with that.
	Status int    `json:",omitzero"`
	Code   string `json:",omitzero"`
	// RetryAfter is told with a Status, in whole seconds, 1 s..24 h; 0: not told.
	RetryAfter time.Duration `json:",omitzero"`
	// Pushback is told with a Code as grpc-retry-pushback-ms, in whole milliseconds, 1 ms..24 h;
	// 0: not told.
	Pushback time.Duration `json:",omitzero"`
	// Latency is how long a Delay holds a request, 1 us..24 h, Jitter how far that varies either
	// way, evenly, at most by the Latency.
	Latency time.Duration `json:",omitzero"`
	Jitter  time.Duration `json:",omitzero"`
	// Method selects requests of that method; empty is any.
	Method string `json:",omitzero"`
	// Path selects requests by their path, which of gRPC is the full method: "/pay/*", where '*'
	// is any text, '/' in it too; empty is any.
	Path string `json:",omitzero"`
	// Headers select requests that have all of them, at most 16.
	Headers []Header `json:",omitzero"`
	// Seed makes request number k of the fault, from 0, meet the same fate each time; 0 has the
	// agent draw one.
	Seed uint64 `json:",omitzero"`
}

// Header is a header field of a request with one of its values, all of it.
type Header struct{ Name, Value string }

// Verdict is what happens to a request.
type Verdict int

// The verdicts.
const (
	Passed Verdict = iota
	Answered
	Held
	Aborted
)

// Draw is what becomes of request number k of those that r selects, from 0: a function of Seed and
// k alone, however many requests there are at a time. The time is how long a Held one waits.
func (r Request) Draw(k uint64) (Verdict, time.Duration) {
	random := rand.New(rand.NewPCG(r.Seed, k))
	x := random.Float64() * 100
	switch {
	case x < float64(r.Error):
		return Answered, 0
	case x < float64(r.Error+r.Delay):
		return Held, r.Latency + time.Duration((2*random.Float64()-1)*float64(r.Jitter))
	case x < float64(r.Error+r.Delay+r.Abort):
		return Aborted, 0
	}
	return Passed, 0
}

// CallsOnly reports whether nothing but gRPC calls is selected.
func (r Request) CallsOnly() bool { return r.Error > 0 && r.Code != "" && r.Status == 0 }

// Selects reports whether the fault is about a request, by its method, its path without a query,
// its headers, and whether it is a gRPC call.
func (r Request) Selects(method, path string, header func(name string) []string, call bool) bool {
	if r.Method != "" && r.Method != method || r.CallsOnly() && !call || !matches(r.Path, path) {
		return false
	}
	for _, h := range r.Headers {
		found := false
		for _, v := range header(h.Name) {
			found = found || v == h.Value
		}
		if !found {
			return false
		}
	}
	return true
}

// matches reports whether text is of the form of pattern, in which '*' is any text.
func matches(pattern, text string) bool {
	if pattern == "" {
		return true
	}
	parts := strings.Split(pattern, "*")
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return pattern == text
	}
	if len(text) < len(first)+len(last) || !strings.HasPrefix(text, first) || !strings.HasSuffix(text, last) {
		return false
	}
	text = text[len(first) : len(text)-len(last)]
	for _, p := range parts[1 : len(parts)-1] {
		_, rest, ok := strings.Cut(text, p)
		if !ok {
			return false
		}
		text = rest
	}
	return true
}

// Apart reports whether no request can be selected by both: by another method, path, or value of a
// header that both name. That of two patterns neither could match is told by their beginnings
// alone.
func (r Request) Apart(o Request) bool {
	if r.Method != "" && o.Method != "" && r.Method != o.Method {
		return true
	}
	if r.Path != "" && o.Path != "" {
		p, star := beginning(r.Path)
		q, other := beginning(o.Path)
		switch {
		case !star && !other && p != q, !star && other && !matches(o.Path, p), star && !other && !matches(r.Path, q):
			return true
		case star && other && !strings.HasPrefix(p, q) && !strings.HasPrefix(q, p):
			return true
		}
	}
	return false
}

// beginning is a pattern up to its first star, and whether it has one.
func beginning(pattern string) (string, bool) {
	before, _, star := strings.Cut(pattern, "*")
	return before, star
}

// Kinds are what r does: some of error, delay and abort.
func (r Request) Kinds() []string {
	var kinds []string
	for _, k := range []struct {
		name  string
		share qdisc.Percent
	}{{"error", r.Error}, {"delay", r.Delay}, {"abort", r.Abort}} {
		if k.share > 0 {
			kinds = append(kinds, k.name)
		}
	}
	return kinds
}

// String says r in words, in the order of the draw: "error 20% 503, delay 10% 300ms of GET /pay/*".
func (r Request) String() string {
	var parts []string
	if r.Error > 0 {
		s := "error " + r.Error.String()
		if r.Status != 0 {
			s += fmt.Sprintf(" %d", r.Status)
		}
		if r.Code != "" {
			s += " " + r.Code
		}
		if r.RetryAfter > 0 {
			s += " retry-after " + qdisc.FormatDuration(r.RetryAfter)
		}
		if r.Pushback > 0 {
			s += " pushback " + qdisc.FormatDuration(r.Pushback)
		}
		parts = append(parts, s)
	}
	if r.Delay > 0 {
		s := "delay " + r.Delay.String() + " " + qdisc.FormatDuration(r.Latency)
		if r.Jitter > 0 {
			s += " jitter " + qdisc.FormatDuration(r.Jitter)
		}
		parts = append(parts, s)
	}
	if r.Abort > 0 {
		parts = append(parts, "abort "+r.Abort.String())
	}
	s := strings.Join(parts, ", ")
	if of := r.selection(); of != "" {
		s += " of " + of
	}
	return s
}

// selection says which requests, empty for all.
func (r Request) selection() string {
	var words []string
	for _, w := range []string{r.Method, r.Path} {
		if w != "" {
			words = append(words, w)
		}
	}
	for _, h := range r.Headers {
		words = append(words, h.Name+"="+h.Value)
	}
	return strings.Join(words, " ")
}
