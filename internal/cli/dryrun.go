package cli

import (
	"fmt"
	"io"
	"strconv"
	"time"

	plans "netemd/internal/experiment/plan"
)

// dryRow is what one plan would do.
type dryRow struct {
	Name    string `json:"name"`
	Lab     string `json:"lab"`
	Cases   int    `json:"cases"`
	Repeats int    `json:"repeats"`
	// Least and Most bound how long it takes, in seconds; both are the same where its plan
	// says how long it takes.
	Least float64 `json:"least_seconds"`
	Most  float64 `json:"most_seconds"`
}

// dryLab is what a lab takes to be made and taken down, beside a run.
const dryLab = 3 * time.Second

// runDry tells what would be run.
func (a *app) runDry(all []plans.Plan) error {
	var rows []dryRow
	var least, most time.Duration
	for _, p := range all {
		l, m := p.Bounds()
		if p.Takes == 0 && p.Lab != "" {
			l, m = l+dryLab, m+dryLab
		}
		least, most = least+l, most+m
		rows = append(rows, dryRow{Name: p.Name, Lab: p.Lab, Cases: len(p.Cases), Repeats: p.Repeats, Least: l.Seconds(), Most: m.Seconds()})
	}
	return a.emit(answer{kind: "run_dry", data: map[string]any{"experiments": rows, "least_seconds": least.Seconds(), "most_seconds": most.Seconds()}, table: func(w io.Writer, s style) {
		t := table{head: []string{"EXPERIMENT", "LAB", "CASES", "REPEATS", "TAKES"}, right: map[int]bool{2: true, 3: true, 4: true}}
		for i, p := range all {
			r := rows[i]
			t.add(p.Name, p.Lab, strconv.Itoa(r.Cases), strconv.Itoa(r.Repeats), takes(r.Least, r.Most))
		}
		t.write(w, s)
		fmt.Fprintln(w)
		wrap(w, fmt.Sprintf("%s in all. Nothing was run.", takes(least.Seconds(), most.Seconds())))
	}})
}

// takes is a time or, where nobody has measured it, its bounds.
func takes(least, most float64) string {
	text := func(s float64) string { return time.Duration(s * float64(time.Second)).Round(time.Second).String() }
	if least == most {
		return text(least)
	}
	return text(least) + " to " + text(most)
}
