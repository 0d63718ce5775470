package report

import (
	"fmt"
	"strconv"
	"strings"

	"netemd/probe"
)

// Time is a duration in milliseconds as people read it: "1.4 ms", "221 ms",
// "3.09 s"; "-" for none.
func Time(ms *float64) string {
	if ms == nil {
		return "-"
	}
	switch v := *ms; {
	case v < 9.95:
		return strconv.FormatFloat(v, 'f', 1, 64) + " ms"
	case v < 999.5:
		return strconv.FormatFloat(v, 'f', 0, 64) + " ms"
	case v < 9995:
		return strconv.FormatFloat(v/1000, 'f', 2, 64) + " s"
	default:
		return strconv.FormatFloat(v/1000, 'f', 1, 64) + " s"
	}
}

// Percent is a share as people read it, with its sign: "20.4%"; "-" for none.
func Percent(p *float64) string {
	if p == nil {
		return "-"
	}
	digits := 1
	if *p > 0 && *p < 1 {
		digits = 3
	}
	s := strconv.FormatFloat(*p, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s + "%"
}

// CauseOrder is the order in which causes are told.
var CauseOrder = []probe.Cause{
	probe.SYNRetransmit, probe.RTO, probe.TLP, probe.FastRetransmit, probe.Dropped, probe.Neighbour, probe.Queueing, probe.ServerDown, probe.PolicyWait, probe.Unknown,
}

// Slow is the number of calls above the threshold.
func Slow(s probe.Summary) int {
	n := 0
	for _, c := range s.Causes {
		n += c
	}
	return n
}

// Causes says the slow calls and why: "108: rto 62, tlp 31, syn_retransmit 15".
func Causes(s probe.Summary) string {
	slow := Slow(s)
	if slow == 0 {
		return "0"
	}
	var parts []string
	for _, c := range CauseOrder {
		if n := s.Causes[c]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c, n))
		}
	}
	return fmt.Sprintf("%d: %s", slow, strings.Join(parts, ", "))
}

// ClassOrder is the order in which errors are told.
var ClassOrder = []probe.Class{
	probe.Timeout, probe.Refused, probe.Reset, probe.EOF, probe.Protocol, probe.Server, probe.Other, probe.Rejected,
}

// Failed says how many calls failed, by class, and how long that took: "timeout 5 (p50 505
// ms, max 506 ms), refused 1 (after 0.3 ms)"; "" for none.
func Failed(s probe.Summary) string {
	var parts []string
	for _, c := range ClassOrder {
		switch f := s.Failed[c]; {
		case s.Errors[c] == 0:
		case f.Count == 0:
			parts = append(parts, fmt.Sprintf("%s %d", c, s.Errors[c]))
		case f.Count == 1:
			parts = append(parts, fmt.Sprintf("%s 1 (after %s)", c, Time(f.Max)))
		default:
			parts = append(parts, fmt.Sprintf("%s %d (p50 %s, max %s)", c, f.Count, Time(f.P50), Time(f.Max)))
		}
	}
	return strings.Join(parts, ", ")
}

// Errors says the failed calls by class: "timeout 2, reset 1"; "" for none.
func Errors(s probe.Summary) string {
	var parts []string
	for _, c := range ClassOrder {
		if n := s.Errors[c]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", c, n))
		}
	}
	return strings.Join(parts, ", ")
}
