package cli

import (
	"errors"
	"fmt"
	"io"

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
		if report.IsOpen(s) {
			t.rows[0][0] += ", since due"
			t.add("  since begun", "", "", report.Time(s.Service.P50), report.Time(s.Service.P90), st.bold(report.Time(s.Service.P99)), report.Time(s.Service.Max), "")
		}
		t.write(w, st)
		pairs(w, st, report.Details(res.Summary, res.Policy))
		if failed := report.Failed(s); failed != "" {
			fmt.Fprintf(w, "failed: %s\n", failed)
			for _, c := range report.ClassOrder {
				if text := s.FirstErrors[c]; text != "" {
					fmt.Fprintf(w, "  %s: %s\n", c, oneLine(errors.New(text)))
				}
			}
		}
		since := ""
		if report.IsOpen(s) {
			since = " since begun"
		}
		fmt.Fprintf(w, "slow is above %g ms%s; causes from %s\n", s.ThresholdMS, since, s.Evidence)
	}
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
	if report.IsOpen(s) && l.MaxInFlight > 0 && l.InFlightMax >= l.MaxInFlight {
		all = append(all, fmt.Sprintf("%d calls were under way, the most that may be (--max-in-flight): later ones had to wait", l.InFlightMax))
	}
	if l.NotStarted > 0 {
		all = append(all, fmt.Sprintf("%d calls were due and could not begin before the end: they are in no percentile, and would have made the high ones higher", l.NotStarted))
	}
	if l.CutOff > 0 {
		all = append(all, fmt.Sprintf("%d calls were cut off by the run's early end, and are no measurement", l.CutOff))
	}
	return all
}
