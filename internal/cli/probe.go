package cli

import (
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"netemd/internal/report"
	"netemd/probe"
	"netemd/qdisc"
)

func (a *app) probe() *cobra.Command {
	cmd := group(&cobra.Command{Use: "probe KIND", Short: "Measure what a real client sees"})
	cmd.AddCommand(a.probePostgres())
	return cmd
}

// callFlags say how many calls are made.
type callFlags struct {
	count, concurrency int
	pace, timeout      time.Duration
}

func (c *callFlags) add(flags *pflag.FlagSet) {
	c.count, c.concurrency = probe.DefaultCount, probe.DefaultConcurrency
	c.pace, c.timeout = probe.DefaultPace, probe.DefaultTimeout
	number := func(n int) string { return fmt.Sprint(n) }
	flags.VarP(typed(&c.count, "N", integer(1, probe.MaxCount), number), "count", "n", "number of calls")
	flags.Var(typed(&c.concurrency, "N", integer(1, probe.MaxConcurrency), number), "concurrency", "calls at a time")
	flags.Var(typed(&c.pace, "TIME", qdisc.ParseDuration, qdisc.FormatDuration), "pace", "least time between the starts of two calls, 0s for none")
	flags.Var(typed(&c.timeout, "TIME", positive, time.Duration.String), "timeout", "budget of one call, connect and query together")
}

// spacing is the pace as a request has it.
func (c *callFlags) spacing() time.Duration {
	if c.pace == 0 {
		return probe.NoPace
	}
	return c.pace
}

func (a *app) probePostgres() *cobra.Command {
	var target, layer, out string
	var calls callFlags
	cmd := &cobra.Command{
		Use: "pg --target NAME [flags]", Short: "New PostgreSQL connections with one query each", DisableFlagsInUseLine: true,
		Long: `Make new PostgreSQL connections with one query each, from where the target's clients
are, and say how long they took and why the slow ones were slow. It exits 0 when it
could measure, whatever the calls did.`,
		Args: arguments(0, "--target pg"), ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().Var(once(&target, "NAME", wantTarget), "target", "`NAME` of the target; required")
	a.completeTargets(cmd)
	layer = probe.LayerDirect
	one(cmd, &layer, "layer", "straight to the target, or through its proxy", probe.LayerDirect, probe.LayerProxy)
	calls.add(cmd.Flags())
	cmd.Flags().StringVar(&out, "out", "", "write result.json and samples.jsonl to this `DIR`")
	cmd.RunE = a.do(func(cmd *cobra.Command, _ []string) error {
		if target == "" {
			return errNoTarget
		}
		agent, err := a.dial()
		if err != nil {
			return err
		}
		defer agent.Close()
		if err := prepare(out); err != nil {
			return err
		}
		p := a.progress()
		res, err := agent.Probe(cmd.Context(), probe.Request{
			Kind: probe.KindPostgres, Target: target, Layer: layer,
			Count: calls.count, Concurrency: calls.concurrency, Pace: calls.spacing(), Timeout: calls.timeout,
		}, func(done, count int) { p.step("probing "+target, done, count) })
		p.end()
		if err != nil {
			return err
		}
		s := res.Summary
		err = a.emit(answer{kind: "probe", data: s, table: func(w io.Writer, st style) {
			t := summaryTable()
			addSummary(&t, st.bold, s)
			t.write(w, st)
			if failed := report.Errors(s); failed != "" {
				fmt.Fprintf(w, "failed: %s\n", failed)
			}
			fmt.Fprintf(w, "slow is above %g ms; causes from %s\n", s.ThresholdMS, s.Evidence)
		}})
		if err != nil || out == "" {
			return err
		}
		if err := report.Probe(out, res); err != nil {
			return err
		}
		a.say("samples: %s", filepath.Join(out, report.SamplesFile))
		return nil
	})
	return cmd
}

// prepare makes the folder of --out, if there is one.
func prepare(out string) error {
	if out == "" {
		return nil
	}
	return report.Prepare(out)
}

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

// progress tells how far something is: on a terminal in one line that is
// rewritten, otherwise one line for each step.
type progress struct {
	w        io.Writer
	terminal bool
	// unit is what is counted.
	unit  string
	last  string
	drawn time.Time
}

func (a *app) progress() *progress {
	return &progress{w: a.env.Stderr, terminal: a.env.StderrTerminal, unit: "calls"}
}

func (p *progress) step(what string, done, count int) {
	if !p.terminal {
		if what != p.last {
			fmt.Fprintf(p.w, "%s (%d %s)\n", what, count, p.unit)
		}
		p.last = what
		return
	}
	if what == p.last && done < count && time.Since(p.drawn) < 50*time.Millisecond {
		return
	}
	if p.last != "" && what != p.last {
		fmt.Fprintln(p.w)
	}
	p.last, p.drawn = what, time.Now()
	fmt.Fprintf(p.w, "\r\x1b[K%s  %d/%d", what, done, count)
}

// end leaves the line.
func (p *progress) end() {
	if p.terminal && p.last != "" {
		fmt.Fprintln(p.w)
	}
	p.last = ""
}
