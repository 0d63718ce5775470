package cli

import (
	"fmt"
	"io"

	"netemd/internal/report"
)

// suiteText says how the runs of a command ended, and which tests failed in which phase.
func suiteText(w io.Writer, s style, e report.Experiment) {
	if len(e.Runs) == 0 {
		return
	}
	fmt.Fprintln(w)
	type column struct{ name, phase string }
	var columns []column
	seen := map[column]bool{}
	runs := table{head: []string{"PHASE", "EXIT", "PASSED", "FAILED", "SKIPPED", "TOOK"}, right: map[int]bool{1: true, 2: true, 3: true, 4: true, 5: true}}
	for _, r := range e.Runs {
		if c := (column{r.Case, r.Phase}); !seen[c] {
			seen[c] = true
			columns = append(columns, c)
		}
		name := r.Case + " " + r.Phase
		if r.Repeat > 0 {
			name = fmt.Sprintf("%s %d", name, r.Repeat)
		}
		exit := s.good("0")
		if r.Exit != 0 {
			exit = s.bad(fmt.Sprint(r.Exit))
		}
		runs.add(name, exit, fmt.Sprint(r.Passed), fmt.Sprint(r.Failed), fmt.Sprint(r.Skipped), fmt.Sprintf("%.1f s", r.Seconds))
	}
	runs.write(w, s)
	if len(e.Tests) == 0 {
		return
	}
	fmt.Fprintln(w)
	failed := table{head: []string{"TEST THAT FAILED"}}
	for _, c := range columns {
		failed.head = append(failed.head, c.name+" "+c.phase)
	}
	bad := 0
	for _, t := range e.Tests {
		if !t.Failed() {
			continue
		}
		bad++
		row := []string{t.Name}
		for _, c := range columns {
			cell := "-"
			for _, p := range t.Phases {
				if p.Case == c.name && p.Phase == c.phase {
					cell = testCell(s, p)
				}
			}
			row = append(row, cell)
		}
		failed.add(row...)
	}
	if bad > 0 {
		failed.write(w, s)
		fmt.Fprintln(w)
	}
	wrap(w, fmt.Sprintf("%d of %d tests failed in no phase.", len(e.Tests)-bad, len(e.Tests)))
}

// testCell is what became of a test in a phase of all repeats.
func testCell(s style, p report.TestPhase) string {
	switch all := p.Passed + p.Failed; {
	case all == 0:
		return "skipped"
	case p.Failed == 0:
		return s.good("ok")
	case all == 1:
		return s.bad("failed")
	default:
		return s.bad(fmt.Sprintf("failed %d of %d", p.Failed, all))
	}
}
