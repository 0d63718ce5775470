package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"netemd/probe"
	"netemd/probe/policy"
	"netemd/qdisc"
)

// policyRows says what a policy does, a layer a line from the outermost on, and then what is
// no layer. Every field has its default.
func policyRows(p policy.Policy) (rows [][2]string) {
	for _, l := range p.Layers() {
		rows = append(rows, [2]string{string(l), layerText(p, l)})
	}
	if len(rows) == 0 {
		rows = append(rows, [2]string{"attempts", "one for each call"})
	}
	if b := p.Budget; b != nil {
		text := fmt.Sprintf("%s of the calls may be tried again, %d are saved up", share(b.Ratio), b.MaxTokens)
		if b.PerSecond > 0 {
			text += fmt.Sprintf(", and %d a second", b.PerSecond)
		}
		rows = append(rows, [2]string{"budget", text})
	}
	if d := p.Deadline; d != nil {
		text := "the peer is told the " + d.Pass + "'s"
		if d.Reserve > 0 {
			text += " less " + qdisc.FormatDuration(d.Reserve)
		}
		rows = append(rows, [2]string{"deadline", text + "; no retry that would begin after the call's end"})
	}
	if i := p.Idempotency; i != nil {
		text := "one key for all attempts of a call"
		switch i.Key {
		case policy.PerAttempt:
			text = "a key for each attempt: a server takes them for several calls"
		case policy.PerRun:
			text = "one key for all calls: a server may process one of them"
		}
		rows = append(rows, [2]string{"idempotency", text})
	}
	return rows
}

func layerText(p policy.Policy, l policy.Layer) string {
	switch l {
	case policy.LayerFallback:
		text := map[string]string{policy.AnswerDefault: "a default answer", policy.AnswerCached: "the last good answer"}[p.Fallback.Answer]
		if p.Fallback.MaxAge > 0 {
			text += ", at most " + qdisc.FormatDuration(p.Fallback.MaxAge) + " old"
		}
		return text + ", on " + classesText(p.Fallback.On)
	case policy.LayerTimeout:
		return qdisc.FormatDuration(p.CallTimeout) + " for the call"
	case policy.LayerRetry:
		return retryText(*p.Retry)
	case policy.LayerHedge:
		return hedgeText(*p.Hedge)
	case policy.LayerBreaker:
		return breakerText(*p.Breaker)
	case policy.LayerBulkhead:
		text := fmt.Sprintf("%d at one time", p.Bulkhead.Concurrent)
		if p.Bulkhead.Queue > 0 {
			text += fmt.Sprintf(", %d wait", p.Bulkhead.Queue)
		}
		if p.Bulkhead.Wait > 0 {
			text += " for " + qdisc.FormatDuration(p.Bulkhead.Wait) + " at most"
		}
		return text
	}
	return qdisc.FormatDuration(p.AttemptTimeout) + " for each attempt"
}

func retryText(r policy.Retry) string {
	pause := map[policy.Backoff]string{
		policy.None:               "at once",
		policy.Fixed:              "after " + qdisc.FormatDuration(r.Base),
		policy.Exponential:        fmt.Sprintf("after %s x %s^(n-1)", qdisc.FormatDuration(r.Base), decimal(r.Factor)),
		policy.FullJitter:         fmt.Sprintf("after 0 to %s x %s^(n-1)", qdisc.FormatDuration(r.Base), decimal(r.Factor)),
		policy.EqualJitter:        fmt.Sprintf("after half of %s x %s^(n-1) to all of it", qdisc.FormatDuration(r.Base), decimal(r.Factor)),
		policy.DecorrelatedJitter: fmt.Sprintf("after %s to 3 x the pause before", qdisc.FormatDuration(r.Base)),
	}[r.Backoff]
	if r.Backoff != policy.None && r.Backoff != policy.Fixed {
		pause += ", at most " + qdisc.FormatDuration(r.MaxDelay)
	}
	if r.IgnorePushback {
		pause += ", whatever pause the server asks for"
	}
	return fmt.Sprintf("%d attempts, %s, on %s", r.MaxAttempts, pause, classesText(r.On))
}

func hedgeText(h policy.Hedge) string {
	text := "another attempt after " + qdisc.FormatDuration(h.Delay)
	if h.Percentile > 0 {
		text = fmt.Sprintf("another attempt after the %s percentile of %d", share(h.Percentile), h.Window)
		if h.Delay > 0 {
			text += ", " + qdisc.FormatDuration(h.Delay) + " until it is known"
		}
	}
	if h.Max > 1 {
		text += fmt.Sprintf(", %d at most", h.Max)
	}
	return text
}

func breakerText(b policy.Breaker) string {
	var opens []string
	if b.Consecutive > 0 {
		opens = append(opens, fmt.Sprintf("%d failures in a row", b.Consecutive))
	}
	if b.Ratio > 0 {
		window := fmt.Sprintf("the last %d", b.Calls)
		if b.Period > 0 {
			window = "the last " + qdisc.FormatDuration(b.Period)
		}
		opens = append(opens, fmt.Sprintf("%s of %s failing (%d at least)", share(b.Ratio), window, b.MinCalls))
	}
	return fmt.Sprintf("opens at %s, for %s; then %d of %s probes close it; failures are %s",
		strings.Join(opens, " or "), qdisc.FormatDuration(b.Open), b.Successes, strconv.Itoa(b.Probes), classesText(b.On))
}

// classesText is short where it can be.
func classesText(given []probe.Class) string {
	all := []probe.Class{probe.Timeout, probe.Refused, probe.Reset, probe.EOF, probe.Protocol, probe.Server, probe.Other}
	rejected := slices.Contains(given, probe.Rejected)
	if !slices.ContainsFunc(all, func(c probe.Class) bool { return !slices.Contains(given, c) }) {
		if rejected {
			return "all errors and rejected"
		}
		return "all errors"
	}
	words := make([]string, len(given))
	for i, c := range given {
		words[i] = string(c)
	}
	return strings.Join(words, ", ")
}

func share(f float64) string   { return qdisc.Percent(math.Round(f*1e12) / 1e10).String() }
func decimal(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
