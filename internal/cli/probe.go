package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"netemd/internal/client"
	"netemd/internal/experiment"
	"netemd/internal/report"
	"netemd/probe"
	"netemd/qdisc"
)

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
	flags.Var(typed(&c.timeout, "TIME", positive, time.Duration.String), "timeout", "budget of one call, of all its parts together; with a policy, of one attempt")
}

// spacing is the pace as a request has it.
func (c *callFlags) spacing() time.Duration {
	if c.pace == 0 {
		return probe.NoPace
	}
	return c.pace
}

func (a *app) probe() *cobra.Command {
	cmd := group(&cobra.Command{
		Use: "probe KIND", Short: "Measure what a real client sees",
		Long: `Make calls from where the target's clients are, and say how long they took, which failed,
and why the slow ones were slow.

A closed loop makes the next call when one has ended (--concurrency, --pace). An open loop
(--rate, --ramp, --spike) makes each call when it is due, whatever the others do, and counts
its latency from then on: a closed loop waits out a server that stalls, and hides it.`,
	})
	for _, k := range kinds {
		cmd.AddCommand(a.probeKind(k))
	}
	return cmd
}

// probeKind is a command for one kind of probe.
func (a *app) probeKind(k kind) *cobra.Command {
	r := &probe.Request{Kind: k.name, Layer: probe.LayerDirect}
	var load loadFlags
	var to outputs
	cmd := &cobra.Command{
		Use: k.name + " --target NAME [flags]", Short: k.short, DisableFlagsInUseLine: true,
		Long: k.long + " It exits 0 when it\ncould measure, whatever the calls did.",
		Args: arguments(0, "--target "+k.example), ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().Var(once(&r.Target, "NAME", wantTarget), "target", "`NAME` of the target; required")
	a.completeTargets(cmd)
	k.options(cmd, r)
	switch k.name {
	case probe.KindUDP:
	case probe.KindHTTP, probe.KindGRPC:
		one(cmd, &r.Layer, "layer", "straight to the target, or through its proxy, or its http-proxy (app)", probe.LayerDirect, probe.LayerProxy, probe.LayerApp)
	default:
		one(cmd, &r.Layer, "layer", "straight to the target, or through its proxy", probe.LayerDirect, probe.LayerProxy)
	}
	load.add(cmd)
	cmd.Flags().Var(once(&to.dir, "DIR", wantFolder), "out", "write the result, every sample as it comes, events of faults, OpenMetrics and OTLP to this `DIR`")
	otlpFlag(cmd, &to.collector)
	cmd.RunE = a.do(func(cmd *cobra.Command, _ []string) error {
		if r.Target == "" {
			return errNoTarget
		}
		if err := load.into(cmd, r); err != nil {
			return err
		}
		run, name, err := load.run(cmd.Context())
		if err != nil {
			return err
		}
		res := report.ProbeResult{Kind: k.name, Policy: name}
		if err := r.Validate(); err != nil {
			return err
		}
		return a.runProbe(cmd.Context(), *r, run, res, to)
	})
	return cmd
}

// run is how the calls are made beside their request, and the name of their policy.
func (l *loadFlags) run(ctx context.Context) (client.ProbeRun, string, error) {
	var run client.ProbeRun
	if l.policy == "" {
		return run, "", nil
	}
	path, text, p, err := readPolicy(ctx, l.policy)
	run.PolicyFile, run.PolicyYAML = path, text
	return run, p.Name, err
}

// outputs are where a run is written and sent to; empty for nowhere.
type outputs struct{ dir, collector string }

// runProbe measures, and tells and writes what was measured, also when the run broke off.
func (a *app) runProbe(ctx context.Context, r probe.Request, run client.ProbeRun, res report.ProbeResult, to outputs) error {
	exp, err := a.exporter(to.collector)
	if err != nil {
		return err
	}
	defer a.sayExported(exp)
	agent, err := a.dial()
	if err != nil {
		return err
	}
	defer agent.Close()
	var rec *report.Recording
	if to.dir != "" {
		if err := a.prepare(to.dir); err != nil {
			return err
		}
		if rec, err = report.Record(to.dir, r); err != nil {
			return err
		}
		run.Samples = rec.Add
	}
	stop := func() {}
	if exp != nil {
		send, record := exp.Of(r), run.Samples
		run.Samples = func(lines []byte, offset time.Duration) error {
			send(lines, offset)
			if record == nil {
				return nil
			}
			return record(lines, offset)
		}
	}
	if rec != nil || exp != nil {
		stop = a.followFaults(ctx, agent, func(e experiment.Event) {
			if rec != nil {
				rec.AddEvent(e)
			}
			if exp != nil {
				exp.AddEvent(e)
			}
		})
	}
	p := a.probeProgress(r)
	run.Progress = func(now probe.Progress) {
		if rec != nil {
			rec.Begin() // the agent has begun: what an earlier run left may go
		}
		p.step(now)
	}
	result, runErr := agent.RunProbe(ctx, r, run)
	stop()
	p.end()
	res.Summary, res.Interrupted = result.Summary, runErr != nil
	if result.Summary.Evidence == "" { // no result came
		if rec == nil || !rec.Begun() {
			return runErr
		}
		res.Summary = rec.Summary("the samples alone: the run's own account did not come")
	}
	told := runErr
	if res.Evidence != "" && (runErr == nil || res.Count > 0) {
		if err := a.emit(answer{kind: "probe", data: res, table: probeText(res)}); err != nil {
			return errors.Join(runErr, err)
		}
		a.warn(probeWarnings(res.Summary))
		if ctx.Err() != nil {
			a.say("netemctl: interrupted: these are the calls until then")
		}
	}
	if rec == nil {
		return told
	}
	if err := rec.Finish(res, a.env.Now()); err != nil {
		return errors.Join(told, err)
	}
	a.say("samples: %s", filepath.Join(to.dir, report.SamplesFile))
	return told
}

// prepare makes the folder of --out, if there is one.
func (a *app) prepare(out string) error {
	if out == "" {
		return nil
	}
	if err := report.Prepare(out); err != nil {
		return usageError{fmt.Errorf("--out: %w", err)}
	}
	a.sayEarlier(out)
	return nil
}

// sayEarlier says that this run's result will be in the place of another's.
func (a *app) sayEarlier(out string) {
	if at := report.Earlier(out); !at.IsZero() {
		a.say("netemctl: this run replaces the result of %s in %s", at.Format(time.RFC3339), out)
	}
}
