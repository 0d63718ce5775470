package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"netemd/internal/report"
	"netemd/probe"
)

// summaryTable is the head of the table of probe and compare.
func summaryTable() table {
	return table{
		head:  []string{"LAYER", "CALLS", "OK", "P50", "P90", "P99", "MAX", "SLOW CALLS AND WHY"},
		right: map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true, 6: true},
	}
}

func addSummary(t *table, paint func(string) string, s probe.Summary) {
	t.add(paint(s.Layer), fmt.Sprint(s.Count), fmt.Sprint(s.OK),
		report.Time(s.P50), report.Time(s.P90), paint(report.Time(s.P99)), report.Time(s.Max), report.Causes(s))
}

// lagShown is the 99th percentile of an open loop's lag, in ms, from which people are told.
const lagShown = 1.0

// probeText is a probe's result as people read it.
func probeText(res report.ProbeResult) func(io.Writer, style) {
	return func(w io.Writer, st style) {
		s := res.Summary
		t := summaryTable()
		addSummary(&t, st.bold, s)
		if isOpen(s) {
			t.rows[0][0] += ", since due"
			t.add("  since begun", "", "", report.Time(s.Service.P50), report.Time(s.Service.P90), st.bold(report.Time(s.Service.P99)), report.Time(s.Service.Max), "")
		}
		t.write(w, st)
		pairs(w, st, probeRows(res))
		if failed := report.Errors(s); failed != "" {
			fmt.Fprintf(w, "failed: %s\n", failed)
		}
		fmt.Fprintf(w, "slow is above %g ms; causes from %s\n", s.ThresholdMS, s.Evidence)
	}
}

func isOpen(s probe.Summary) bool { return s.Load != nil && s.Load.Loop == "open" }

// probeRows are what not every probe has.
func probeRows(res report.ProbeResult) (rows [][2]string) {
	s := res.Summary
	row := func(name, format string, args ...any) {
		rows = append(rows, [2]string{name, fmt.Sprintf(format, args...)})
	}
	if s.Explained != nil && report.Slow(s) > 1 {
		row("explained", "%s of %d slow calls", report.Percent(s.Explained), report.Slow(s))
	}
	if text := phasesText(s); text != "" {
		row("phases p50/p99", "%s", text)
	}
	if s.Turns != nil {
		row("turns", "%g a call", *s.Turns)
	}
	if res.Policy != "" {
		text := fmt.Sprintf("%d attempts", s.Attempts)
		if s.AttemptsPerCall != nil {
			text += fmt.Sprintf(", %s a call", strconv.FormatFloat(*s.AttemptsPerCall, 'f', 2, 64))
		}
		if s.Rejected > 0 {
			text += fmt.Sprintf("; %d calls rejected without one", s.Rejected)
		}
		if s.Degraded > 0 {
			text += fmt.Sprintf("; %d answered by the fallback, in no percentile", s.Degraded)
		}
		row("policy "+res.Policy, "%s", text)
		row("policy events", "%s", policyText(s))
	}
	if g := s.Goodput; g != nil {
		row("goodput", "%s a second in all; %s a second in the median call", amount(g.PerSecond), amount(g.CallP50))
	}
	if d := s.UDP; d != nil {
		row("packets", "%d sent, %d answered, %d late, %d lost (%d or more on the way there, %d back)", d.Sent, d.Answered, d.Late, d.Lost, d.LostThere, d.LostBack)
		row("order", "%d and %d overtaken, %d and %d duplicates, there and back", d.ReorderedThere, d.ReorderedBack, d.DuplicatesThere, d.DuplicatesBack)
	}
	if o := s.OneWay; o != nil {
		row("one way p50/p99", "%s/%s there, %s/%s back", report.Time(o.There.P50), report.Time(o.There.P99), report.Time(o.Back.P50), report.Time(o.Back.P99))
	}
	if l := s.Load; isOpen(s) {
		asked := ""
		if l.Asked != nil {
			asked = fmt.Sprintf("%s a second asked for, ", figure(*l.Asked))
		}
		row("open loop", "%s%s made; at most %d under way; began late by %s (p99)", asked, figure(l.Achieved), l.InFlightMax, report.Time(l.LagP99))
	}
	if s.Warmup > 0 {
		row("warm-up", "%d calls, which are in no number", s.Warmup)
	}
	return rows
}

// phaseOrder is that of a call.
var phaseOrder = []string{"dns", "connect", "tls", "auth", "begin", "settings", "prepare", "query", "commit", "send", "first_byte", "body"}

func phasesText(s probe.Summary) string {
	names := slices.SortedFunc(maps.Keys(s.Phases), func(a, b string) int {
		x, y := slices.Index(phaseOrder, a), slices.Index(phaseOrder, b)
		if x == y {
			return strings.Compare(a, b)
		}
		return x - y
	})
	if len(names) < 2 { // one part is the whole
		return ""
	}
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%s %s/%s", name, report.Time(s.Phases[name].P50), report.Time(s.Phases[name].P99))
	}
	return strings.Join(parts, ", ")
}

func policyText(s probe.Summary) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Policy)) {
		for _, event := range slices.Sorted(maps.Keys(s.Policy[name])) {
			parts = append(parts, fmt.Sprintf("%s %s %d", name, event, s.Policy[name][event]))
		}
	}
	return strings.Join(parts, ", ")
}

// amount is a number of bytes with three digits.
func amount(bytes float64) string {
	for _, unit := range []string{"B", "kB", "MB"} {
		if bytes < 999.5 {
			return figure(bytes) + " " + unit
		}
		bytes /= 1000
	}
	return figure(bytes) + " GB"
}

// figure is a number with three digits, without an exponent.
func figure(v float64) string {
	digits := 0
	switch {
	case v < 9.995:
		digits = 2
	case v < 99.95:
		digits = 1
	}
	s := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// probeWarnings say why a result may be less than what was asked for.
func probeWarnings(s probe.Summary) (all []string) {
	l := s.Load
	if l == nil {
		return nil
	}
	if l.LagP99 != nil && *l.LagP99 >= lagShown {
		all = append(all, fmt.Sprintf("the generator fell behind its schedule by up to %s (p99 %s); latencies contain that", report.Time(l.LagMax), report.Time(l.LagP99)))
	}
	if isOpen(s) && l.MaxInFlight > 0 && l.InFlightMax >= l.MaxInFlight {
		all = append(all, fmt.Sprintf("%d calls were under way, the most that may be (--max-in-flight): later ones had to wait", l.InFlightMax))
	}
	if l.CutOff > 0 {
		all = append(all, fmt.Sprintf("%d calls were cut off by the run's early end, and are no measurement", l.CutOff))
	}
	return all
}
