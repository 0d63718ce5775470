package testbed

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
)

// counters are numbers with names. It is safe for concurrent use.
type counters struct {
	mu  sync.Mutex
	all map[string]int64
	// kept are those of what is under way, which a reset leaves.
	kept map[string]bool
}

func (c *counters) add(name string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = map[string]int64{}
	}
	c.all[name] += n
}

// level is add for what is under way.
func (c *counters) level(name string, n int64) {
	c.add(name, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept == nil {
		c.kept = map[string]bool{}
	}
	c.kept[name] = true
}

// Counters implements control.Controlled.
func (c *counters) Counters() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.all)
}

// Reset implements control.Controlled.
func (c *counters) Reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.all {
		if !c.kept[name] {
			c.all[name] = 0
		}
	}
}

// echoCounts are what an http-echo counts: hits, those of each method (hits_get), answers of
// a status below 400 (ok) and others (errors), and requests under way (in_flight).
type echoCounts struct{ counters }

// Settings implements control.Controlled; there are none.
func (e *echoCounts) Settings() []byte { return nil }

// Set implements control.Controlled.
func (e *echoCounts) Set(text []byte) error { return noSettings(HTTPEchoChild, text) }

// noSettings refuses any of a server that has none.
func noSettings(kind string, text []byte) error {
	if len(strings.TrimSpace(string(text))) > 0 {
		return fmt.Errorf("settings: a service of kind %s has none, want %s", kind, TierChild)
	}
	return nil
}

func (e *echoCounts) around(h http.Handler) http.Handler {
	for _, name := range []string{"hits", "ok", "errors"} {
		e.add(name, 0)
	}
	e.level("in_flight", 0)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			h.ServeHTTP(w, r)
			return
		}
		e.add("hits", 1)
		e.add("hits_"+strings.ToLower(r.Method), 1)
		e.level("in_flight", 1)
		defer e.level("in_flight", -1)
		said := &statusOf{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(said, r)
		if said.status < http.StatusBadRequest {
			e.add("ok", 1)
		} else {
			e.add("errors", 1)
		}
	})
}

// statusOf notes the status of an answer.
type statusOf struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusOf) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (s *statusOf) Unwrap() http.ResponseWriter { return s.ResponseWriter }
