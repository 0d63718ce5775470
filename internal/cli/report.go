package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"netemd/internal/experiment"
	plans "netemd/internal/experiment/plan"
	"netemd/internal/fault"
	"netemd/internal/report"
	"netemd/qdisc"
)

func (a *app) report() *cobra.Command {
	return &cobra.Command{
		Use: "report DIR [DIR]", Short: "What a run came to, again, or two runs beside each other",
		DisableFlagsInUseLine: true, Args: cobra.RangeArgs(1, 2),
		Long: `Read the folder that 'netemctl run --out' made, say again what it came to, and write again
what is made of its other files: report.html, junit.xml, otlp-traces.jsonl and, of several
experiments, index.html. Neither an agent nor a lab is needed. The exit code is the
verdict's, as it was run's; a run that was killed is inconclusive.

Of two folders it says what changed from the first to the second beyond noise, and writes
nothing: latencies and attempts of calls by the test of Mann and Whitney, successes by the
exact test of Fisher, all tests of the two runs together wrong no more often than once in
1,000 comparisons (Holm); where both have several repeats, their numbers must differ, too, at
the level of 99 % (Student). It exits 0 whatever changed.`,
		RunE: a.do(func(_ *cobra.Command, args []string) error {
			if len(args) == 2 {
				return a.reportTwo(args[0], args[1])
			}
			return a.reportOne(args[0])
		}),
	}
}

// openRuns reads a folder. That there is none is a mistake of who wrote the command line.
func openRuns(dir string) ([]report.Run, error) {
	runs, err := report.Open(dir)
	var missing *fs.PathError
	if errors.As(err, &missing) && errors.Is(err, fs.ErrNotExist) {
		return nil, fault.WithHint(&qdisc.FieldError{Field: "report", Value: dir, Want: "the folder of a run: there is no " + report.ResultFile + " in it"},
			"a run leaves one with: netemctl run NAME --out DIR")
	}
	return runs, err
}

// reportOne says what a folder has, and renders it.
func (a *app) reportOne(dir string) error {
	runs, err := openRuns(dir)
	if err != nil {
		return err
	}
	several := report.Several(dir)
	var all []report.Experiment
	var failed error
	for _, r := range runs {
		if r.Unended() {
			a.judgeAgain(&r)
		}
		if h := report.Hash(r.Plan); r.Plan != nil && h != r.PlanSHA256 {
			a.warn([]string{fmt.Sprintf("%s: %s was changed after the run: its sha256 is %s, the run's was %s", r.Name, report.PlanFile, h, r.PlanSHA256)})
		}
		all = append(all, r.Experiment)
		at := dir
		if several {
			at = filepath.Join(dir, filepath.FromSlash(r.Name))
		}
		if _, err := os.Stat(at); err == nil {
			failed = errors.Join(failed, r.Derive(at))
		}
		if a.output != outJSON {
			failed = errors.Join(failed, a.emit(answer{kind: "run", data: r.Experiment, table: experimentText(r.Experiment)}))
		}
	}
	if several {
		failed = errors.Join(failed, report.WriteIndex(dir, report.Experiments{Experiments: all}))
	}
	if a.output == outJSON {
		failed = errors.Join(failed, a.emit(answer{kind: "run", data: report.Experiments{Experiments: all}}))
	}
	if len(all) > 1 && a.output == outTable {
		summaryOf(all).write(a.out, a.style(a.env.StdoutTerminal))
	}
	page := report.PageFile
	if several {
		page = report.IndexFile
	}
	a.say("report: %s", filepath.Join(dir, page))
	return errors.Join(failed, verdicts(all))
}

// judgeAgain judges what a run that did not end has measured, by the plan in its folder: the
// whole stays inconclusive.
func (a *app) judgeAgain(r *report.Run) {
	if report.Hash(r.Plan) != r.PlanSHA256 {
		return
	}
	p, err := plans.Parse(report.PlanFile, r.Plan)
	if err != nil || p.Commands() { // what tests said is in no file but the last one
		return
	}
	if r.Quick {
		p = p.Shortened()
	}
	p.Repeats, p.Seed = r.Repeats, r.Seed
	r.KPIs = report.Judged(experiment.Judge(p, r.Observations))
	r.Contrasts = report.Contrasts(experiment.Contrasts(r.Observations))
}

// reportTwo says what changed from a run to another.
func (a *app) reportTwo(before, after string) error {
	first, err := openRuns(before)
	if err != nil {
		return err
	}
	second, err := openRuns(after)
	if err != nil {
		return err
	}
	c := report.Changes(first, second)
	return a.emit(answer{kind: "report_changes", data: c, lines: anys(c.Experiments), table: changesText(c)})
}

// changesText says it in words.
func changesText(c report.Changed) func(io.Writer, style) {
	return func(w io.Writer, s style) {
		for i, e := range c.Experiments {
			if i > 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintf(w, "%s: %s, then %s\n", s.bold(e.Name), paintKPI(s, e.Before.Verdict), paintKPI(s, e.After.Verdict))
			for _, n := range e.Notes {
				wrap(w, n)
			}
			fmt.Fprintln(w)
			t := table{head: []string{"CASE", "PHASE", "WHAT", "BEFORE", "AFTER", ""}, right: map[int]bool{3: true, 4: true}}
			for _, x := range e.Measures {
				if x.Changed {
					t.add(x.Case, x.Phase, x.What, x.Text(x.Before), x.Text(x.After), x.Words())
				}
			}
			if len(t.rows) > 0 {
				t.write(w, s)
			}
			for _, k := range e.KPIs {
				if k.Before != k.After {
					wrap(w, fmt.Sprintf("%s, then %s: %s (%s; then %s)", paintKPI(s, k.Before), paintKPI(s, k.After), k.Name(), k.BeforeWords, k.AfterWords))
				}
			}
			wrap(w, e.Sum())
		}
		for _, name := range c.OnlyBefore {
			fmt.Fprintf(w, "%s: only in the first\n", name)
		}
		for _, name := range c.OnlyAfter {
			fmt.Fprintf(w, "%s: only in the second\n", name)
		}
	}
}
