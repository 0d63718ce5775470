package control

import (
	"slices"
	"strings"
)

// The kinds of services that have a control.
const (
	HTTPEcho = "http-echo"
	HTTPTier = "http-tier"
	Payment  = "payment"
)

// Kinds are all of them.
func Kinds() []string { return []string{HTTPEcho, HTTPTier, Payment} }

// counters are those that each kind has from its beginning; a word in capitals stands for many:
// METHOD, in lower case, and UPSTREAM, of a tier's settings.
var counters = map[string][]string{
	HTTPEcho: {"hits", "hits_METHOD", "ok", "errors", "in_flight"},
	HTTPTier: {
		"hits", "ok", "errors", "refused", "degraded", "in_flight", "calls", "attempts", "retries", "rejected", "ejected",
		"completed_for_nobody", "wasted_ms", "late_ms", "work_ms", "held_ms",
		"UPSTREAM.calls", "UPSTREAM.ok", "UPSTREAM.attempts", "UPSTREAM.retries", "UPSTREAM.rejected",
	},
	Payment: {"hits", "ok", "replays", "conflicts", "lost", "errors", "in_flight", "rows", "doubled", "unanswered"},
}

// Counters are the counters of a kind of service, as they are told to people.
func Counters(kind string) []string { return slices.Clone(counters[kind]) }

// Counts reports whether a service of a kind has a counter of that name.
func Counts(kind, name string) bool {
	return slices.ContainsFunc(counters[kind], func(c string) bool {
		switch {
		case strings.HasSuffix(c, "_METHOD"):
			method, ok := strings.CutPrefix(name, strings.TrimSuffix(c, "METHOD"))
			return ok && method != ""
		case strings.HasPrefix(c, "UPSTREAM."):
			upstream, ok := strings.CutSuffix(name, strings.TrimPrefix(c, "UPSTREAM"))
			return ok && upstream != ""
		}
		return c == name
	})
}
