package cli

import (
	"fmt"

	"netemd/internal/report"
)

// acrossText is what the repeats differ by; nothing where they are one, or alike.
func acrossText(a *report.Across) string {
	if a == nil || a.Least == a.Largest {
		return ""
	}
	return fmt.Sprintf(" [repeats: median %.4g, %.4g..%.4g]", a.Median, a.Least, a.Largest)
}

// contrastText says what the fault did to the latencies of a case, and no more than chance allows.
func contrastText(c report.Contrast) string {
	of := fmt.Sprintf("%s: median %.4g ms of %d good calls under the fault, %.4g ms of %d without it", c.Case, c.FaultMedian, c.Fault, c.ControlMedian, c.Control)
	if !c.Differs {
		return fmt.Sprintf("%s; chance explains the difference (Mann-Whitney, p = %.2g).", of, c.P)
	}
	return fmt.Sprintf("%s; the call under the fault is the slower one in %.1f %% of pairs (Mann-Whitney, p < 0.001).", of, 100*c.Slower)
}
