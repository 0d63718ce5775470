package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"

	"github.com/spf13/cobra"

	"netemd/internal/client"
	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/report"
	"netemd/internal/version"
	"netemd/qdisc"
)

// compareLoss is the loss of a comparison that names no impairment.
const compareLoss qdisc.Percent = 20

func (a *app) compare() *cobra.Command {
	var f packetFlags
	var calls comparedCalls
	var to outputs
	cmd := &cobra.Command{
		Use: "compare --target NAME [--probe KIND] [flags]", Short: "No fault, packet layer and proxy layer side by side",
		DisableFlagsInUseLine: true, ValidArgsFunction: cobra.NoFileCompletions, Args: arguments(0, "--target pg --loss 20%"),
		Long: `Make the same calls four times: without a fault, with a packet fault (20 % loss if
none is named), through a proxy that does nothing, and through the proxy with
latency of the packet fault's median. The table shows what a proxy cannot show: the
long tail that packet loss makes.

The calls are those of 'netemctl probe KIND', with its options. --rate is told apart by
its unit: 10mbit is the fault's, 100/s the calls'. A seed is that of both. Of udp there
are two rows: a TCP proxy carries no packets.

It exits 4 when the rows must not be compared: when the fault was lost on the way,
or no packet matched it.`,
	}
	cmd.Flags().Var(once(&f.target, "NAME", wantTarget), "target", "`NAME` of the target; required")
	a.completeTargets(cmd)
	i := bind(cmd, &f.asked)
	i.all()
	i.common()
	i.done(true)
	one(cmd, &f.way, "direction", "packets that go to the target, that come from it, or both", way(fault.To), way(fault.From), way(fault.Both))
	engineFlag(cmd, &f.engine)
	calls.add(cmd)
	cmd.Flags().Var(once(&to.dir, "DIR", wantFolder), "out", "write result.json, report.html, samples.jsonl and events.jsonl to this `DIR`")
	otlpFlag(cmd, &to.collector)
	cmd.RunE = a.do(func(cmd *cobra.Command, _ []string) error {
		cmd.Flags().Lookup("rate").Changed = f.patch.Rate != nil // else it is the calls' alone
		if !f.impairs() {
			f.patch.Loss = new(compareLoss)
		}
		if f.target == "" {
			return errNoTarget
		}
		spec, err := f.spec(a, cmd)
		if err != nil {
			return err
		}
		calls.seed = spec.Packet.Seed
		request, err := calls.request(a, cmd)
		if err != nil {
			return err
		}
		run, policy, err := calls.run(cmd.Context())
		if err != nil {
			return err
		}
		return a.runCompare(cmd.Context(), spec, experiment.Plan{Request: request, Policy: policy, Within: a.env.Getenv(envHold)}, run, to)
	})
	return cmd
}

// runCompare fills the plan, which has the calls, and follows it.
func (a *app) runCompare(ctx context.Context, spec fault.Spec, p experiment.Plan, run client.ProbeRun, to outputs) error {
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
	if err := fillPlan(ctx, agent, spec, &p); err != nil {
		return err
	}
	if err := a.prepare(to.dir); err != nil {
		return err
	}
	rows := &rowProber{agent: agent, run: run, exporter: exp}
	stop := a.followFaults(ctx, agent, rows.happened)
	pr := a.progress()
	c, err := experiment.Compare(ctx, p, rows, agent, pr.step)
	stop()
	pr.end()
	c.Events = rows.events()
	if err != nil {
		return hintUnsupported(err, spec)
	}
	a.warn(c.Warnings)
	if err := a.emit(answer{kind: "compare", data: c, lines: anys(c.Rows), table: compareText(c)}); err != nil {
		return err
	}
	if !c.Conclusive {
		for _, r := range c.Reasons {
			a.say("inconclusive: %s", r)
		}
	}
	if to.dir != "" {
		if err := report.Comparison(to.dir, c); err != nil {
			return err
		}
		a.say("report: %s", filepath.Join(to.dir, report.PageFile))
	}
	if !c.Conclusive {
		return fmt.Errorf("compare: %w: the rows must not be compared", errInconclusive)
	}
	return nil
}

// fillPlan looks at what the comparison depends on before anything is done.
func fillPlan(ctx context.Context, agent Agent, spec fault.Spec, p *experiment.Plan) error {
	t, err := agent.Resolve(ctx, spec.Target)
	if err != nil {
		return err
	}
	fs, err := agent.List(ctx)
	if err != nil {
		return err
	}
	for _, f := range fs {
		if f.Spec.Target == spec.Target && (f.State == fault.Active || f.State == fault.Drifted) {
			return fault.WithHint(
				fmt.Errorf("compare: %s already has a fault, %s (%s), so there is no control run", spec.Target, f.ID, words(f.Spec)),
				"take it away: netemctl clear "+f.ID,
			)
		}
	}
	v, err := agent.Version(ctx)
	if err != nil {
		return err
	}
	p.Target, p.Packet, p.Direction, p.Engine = spec.Target, *spec.Packet, directionOf(spec), spec.Engine
	p.Proxy, p.Asked = t.Proxy.IsValid(), words(spec)
	p.Environment = experiment.Environment{
		Kernel: v.Kernel, AgentVersion: v.Version, ClientVersion: version.String(), GoVersion: v.GoVersion,
		Arch: runtime.GOARCH, CPUs: runtime.NumCPU(),
	}
	return nil
}

func compareText(c experiment.Comparison) func(io.Writer, style) {
	return func(w io.Writer, s style) {
		t := summaryTable()
		for _, r := range c.Rows {
			paint := func(text string) string { return text }
			if r.Layer == experiment.LayerPacket {
				paint = s.bold
			}
			addSummary(&t, paint, r.Summary)
		}
		t.write(w, s)
		pairs(w, s, report.RowDetails(c))
		fmt.Fprintln(w)
		for _, line := range report.Explain(c) {
			wrap(w, line)
		}
		if line := report.LossLine(c.Row(experiment.LayerPacket)); line != "" {
			wrap(w, "The fault: "+line+".")
		}
		wrap(w, fmt.Sprintf("Engine %s%s. Kernel %s.", c.Engine, because(c.EngineReason), c.Environment.Kernel))
	}
}
