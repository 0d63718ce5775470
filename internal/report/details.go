package report

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"netemd/internal/experiment"
	"netemd/probe"
)

// IsOpen reports that the calls were made by an open loop.
func IsOpen(s probe.Summary) bool { return s.Load != nil && s.Load.Loop == "open" }

// Details are what not every probe has, each with its name; policy is the name of the
// client policy, empty for none.
func Details(s probe.Summary, policy string) (rows [][2]string) {
	row := func(name, format string, args ...any) {
		rows = append(rows, [2]string{name, fmt.Sprintf(format, args...)})
	}
	if s.Explained != nil && Slow(s) > 1 {
		row("explained", "%s of %d slow calls", Percent(s.Explained), Slow(s))
	}
	if text := phasesText(s); text != "" {
		row("phases p50/p99", "%s", text)
	}
	if s.Turns != nil {
		row("turns", "%g a call", *s.Turns)
	}
	if policy != "" {
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
		if s.Replays > 0 {
			text += fmt.Sprintf("; %d answered as an earlier request with the same key", s.Replays)
		}
		row("policy "+policy, "%s", text)
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
		row("one way p50/p99", "%s/%s there, %s/%s back", Time(o.There.P50), Time(o.There.P99), Time(o.Back.P50), Time(o.Back.P99))
	}
	if l := s.Load; IsOpen(s) {
		asked := ""
		if l.Asked != nil {
			asked = fmt.Sprintf("%s a second asked for, ", Figure(*l.Asked))
		}
		never := ""
		if l.NotStarted > 0 {
			never = fmt.Sprintf("; %d never began and are in no percentile", l.NotStarted)
		}
		row("open loop", "%s%s made; at most %d under way; began late by %s (p99)%s", asked, Figure(l.Achieved), l.InFlightMax, Time(l.LagP99), never)
	}
	if text := Outages(s.Outages); text != "" {
		row("outage", "%s", text)
	}
	if text := TCP(s.Environment); text != "" {
		row("tcp", "%s", text)
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
		parts[i] = fmt.Sprintf("%s %s/%s", name, Time(s.Phases[name].P50), Time(s.Phases[name].P99))
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
			return Figure(bytes) + " " + unit
		}
		bytes /= 1000
	}
	return Figure(bytes) + " GB"
}

// Figure is a number with three digits, without an exponent.
func Figure(v float64) string {
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

// RowDetails are a comparison's Details, each name with its row's layer before it. The calls of
// PostgreSQL alone, without a policy, have none: what matters of them is in the table.
func RowDetails(c experiment.Comparison) (rows [][2]string) {
	shown := []string{"policy", "goodput", "packets", "order", "one way", "open loop"}
	for _, r := range c.Rows {
		if c.Kind != probe.KindTCP {
			r.Goodput = nil // it is what the calls are for there alone
		}
		for _, d := range Details(r.Summary, c.Policy) {
			if slices.ContainsFunc(shown, func(name string) bool { return strings.HasPrefix(d[0], name) }) {
				rows = append(rows, [2]string{r.Layer + ": " + d[0], d[1]})
			}
		}
	}
	return rows
}
