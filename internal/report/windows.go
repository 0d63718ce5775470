package report

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/version"
)

// windows makes a span of each fault's time, with what happened to it as the span's events, so
// that it stands beside the spans of the calls.
type windows struct {
	open  map[string]*span
	order []string
	// ids makes an id of so many bytes, in hex; nil: randomID.
	ids func(n int) string
}

// add takes an event, and returns the span that it ended, or nil.
func (w *windows) add(e experiment.Event) *span {
	at := strconv.FormatInt(e.Time.UnixNano(), 10)
	s := w.open[e.Fault]
	if s == nil {
		if e.Over() { // its beginning was not seen
			return nil
		}
		if w.open == nil {
			w.open = map[string]*span{}
		}
		id := randomID
		if w.ids != nil {
			id = w.ids
		}
		s = &span{
			TraceID: id(16), SpanID: id(8), Name: "fault: " + e.Asked, Kind: spanInternal, Start: at,
			Attributes: []attribute{
				text("netemd.fault", e.Fault), text("netemd.fault.target", e.Target), text("netemd.fault.asked", e.Asked), text("netemd.fault.engine", e.Engine),
			},
		}
		w.open[e.Fault] = s
		w.order = append(w.order, e.Fault)
	}
	about := []attribute{text("netemd.fault.state", e.State), text("netemd.fault.asked", e.Asked)}
	if e.Reason != "" {
		about = append(about, text("netemd.fault.reason", e.Reason))
	}
	s.Events = append(s.Events, spanEvent{at, "fault." + e.Event, about})
	if !e.Over() {
		return nil
	}
	delete(w.open, e.Fault)
	s.End = at
	return s
}

// rest are the spans of the faults that have not ended, until now.
func (w *windows) rest(now time.Time) (spans []span) {
	for _, id := range w.order {
		s := w.open[id]
		if s == nil {
			continue
		}
		s.End = strconv.FormatInt(now.UnixNano(), 10)
		s.Attributes = append(s.Attributes, flag("netemd.fault.goes_on", true))
		spans = append(spans, *s)
		delete(w.open, id)
	}
	return spans
}

// randomID is an id of n bytes in hex, which is not all zeros.
func randomID(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it cannot fail
	b[0] |= 1
	return hex.EncodeToString(b)
}

// tracesOf is a document with spans.
func tracesOf(r resource, spans []span) tracesData {
	return tracesData{[]resourceSpans{{Resource: r, ScopeSpans: []scopeSpans{{Scope: scope{"netemd", version.String()}, Spans: spans}}}}}
}
