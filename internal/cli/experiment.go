package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/catalogue"
	"netemd/internal/client"
	"netemd/internal/experiment"
	plans "netemd/internal/experiment/plan"
	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/internal/policyfile"
	"netemd/internal/report"
	"netemd/probe"
)

// runFlags change what a plan says.
type runFlags struct {
	seed    uint64
	repeats int
	all     bool
	quick   bool
	dryRun  bool
	out     string
	force   bool
	junit   string
	// collector takes spans; empty: nobody, or who the environment says.
	collector string
	argv      []string
}

func (a *app) experiment() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use: "run NAME|PATTERN|FILE... [flags] [-- CMD...]", Short: "Run experiments: control, fault, recovery, and a verdict",
		DisableFlagsInUseLine: true, Args: cobra.ArbitraryArgs, ValidArgsFunction: a.completeExperiments,
		Long: `Run experiments as their plans say: calls without a fault, then with it, then after it,
several times, and judge what was measured by the plan's conditions. 'netemctl catalogue'
lists those that are built in; docs/experiments.md says what a plan of your own is.

It exits 3 when a condition does not hold, and 4 when one cannot be judged, as when the
fault was lost on the way or no packet met it.

Where the phases of a plan are a command ('phases: {control: command, fault: command}'), CMD
runs in each: your own tests, of which is said which failed in which phase. What 'go test'
says is understood, and of others a file in JUnit's form. CMD is killed at its limit, and with
netemctl, and what it started with it.`,
	}
	cmd.Flags().Var(typed(&f.seed, "N", unsigned[uint64](64, 1), nil), "seed", "seed of all that is drawn, instead of the plan's")
	cmd.Flags().Var(typed(&f.repeats, "N", integer(1, plans.MaxRepeats), nil), "repeats", "repeats of each case, instead of the plan's")
	cmd.Flags().BoolVar(&f.quick, "quick", false, "fewer repeats and calls, as the plans say; what so few leave open is inconclusive")
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "say what would be run and how long it takes, and run nothing")
	cmd.Flags().BoolVar(&f.all, "all", false, "every experiment of the catalogue")
	cmd.Flags().Var(once(&f.out, "DIR", wantFolder), "out", "write the result, a page and every call as it comes to this `DIR`, which is empty or not there yet; of several experiments below it")
	cmd.Flags().BoolVar(&f.force, "force", false, "take the run away that is in --out")
	otlpFlag(cmd, &f.collector)
	cmd.Flags().Var(once(&f.junit, "FILE", "the path of a file that CMD writes, in JUnit's form"), "junit", "read which tests failed from this `FILE`, which CMD writes")
	cmd.RunE = a.do(func(cmd *cobra.Command, args []string) error {
		f.argv = dashed(cmd, args)
		if at := cmd.ArgsLenAtDash(); at >= 0 {
			args = args[:at]
			if len(f.argv) == 0 || f.argv[0] == "" {
				return usageError{wantCommand(cmd, "FILE -- CMD")}
			}
		}
		all, err := f.plans(cmd.Context(), a, args)
		if err != nil {
			return err
		}
		if err := f.commands(all); err != nil {
			return err
		}
		if f.force && f.out == "" {
			return usageError{errors.New("run: --force is of --out DIR")}
		}
		if f.dryRun {
			return a.runDry(all)
		}
		if err := errors.Join(freeFolder(f.out, f.force), ownFolders(f.out, all)); err != nil {
			return err
		}
		if len(f.argv) > 0 {
			if code, err := a.env.FindCommand(f.argv[0]); err != nil {
				a.say("netemctl: %s: %v", f.argv[0], err)
				return commandExit{code}
			}
		}
		return a.runExperiments(cmd.Context(), all, f)
	})
	return cmd
}

// plans are those that a command line means.
func (f runFlags) plans(ctx context.Context, a *app, args []string) (all []plans.Plan, err error) {
	switch {
	case f.all && len(args) > 0:
		return nil, usageError{errors.New("--all has no names beside it")}
	case f.all:
		all = catalogue.Plans()
	case len(args) == 0:
		return nil, usageError{fault.WithHint(errors.New("run: takes at least one experiment"), "write: netemctl run NAME, or --all; see 'netemctl catalogue'")}
	}
	for _, word := range args {
		var found []plans.Plan
		if catalogue.IsFile(word) {
			p, err := a.readPlan(ctx, word)
			if err != nil {
				return nil, err
			}
			found = []plans.Plan{p}
		} else if found, err = catalogue.Match(word); err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	for i := range all {
		if f.quick {
			all[i] = all[i].Shortened()
		}
		if f.repeats > 0 && f.repeats != all[i].Repeats {
			all[i].Repeats, all[i].Takes = f.repeats, 0 // what was measured is of the plan's own
		}
		all[i].Seed = cmp.Or(f.seed, all[i].Seed, rand.Uint64()) //nolint:forbidigo // the one draw that nothing repeats: it is told
		if err := errors.Join(policies(ctx, &all[i], ""), a.checkSettings(ctx, all[i]), a.checkCounters(ctx, all[i])); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// completeExperiments completes names and files; behind -- stands a command, which is of files.
// cobra parses with a -- of its own, so that only the words themselves say whether one was typed.
func (a *app) completeExperiments(_ *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	if n := len(a.env.Args); n > 0 && slices.Contains(a.env.Args[:n-1], "--") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var names []string
	for _, p := range catalogue.Plans() {
		names = append(names, cobra.CompletionWithDesc(p.Name, p.Question))
	}
	return names, cobra.ShellCompDirectiveDefault
}

func (a *app) catalogue() *cobra.Command {
	cmd := &cobra.Command{
		Use: "catalogue [NAME]", Short: "The experiments that are built in, or the plan of one",
		Args: cobra.MaximumNArgs(1), DisableFlagsInUseLine: true, ValidArgsFunction: a.completeExperiments,
		RunE: a.do(func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				text, ok := catalogue.Text(args[0])
				if !ok {
					_, err := catalogue.Match(args[0])
					return cmp.Or(err, error(usageError{errors.New("catalogue: a name, and no pattern")}))
				}
				_, err := a.out.Write(text)
				return err
			}
			var rows []experimentRow
			for _, p := range catalogue.Plans() {
				rows = append(rows, experimentRow{Name: p.Name, Question: p.Question, Lab: p.Lab, Cases: len(p.Cases), KPIs: len(p.KPIs)})
			}
			return a.emit(answer{kind: "catalogue", data: map[string]any{"experiments": rows}, lines: anys(rows), table: func(w io.Writer, s style) {
				t := table{head: []string{"EXPERIMENT", "LAB", "CASES", "KPIS", "QUESTION"}, right: map[int]bool{2: true, 3: true}}
				for _, r := range rows {
					t.add(r.Name, r.Lab, strconv.Itoa(r.Cases), strconv.Itoa(r.KPIs), r.Question)
				}
				t.write(w, s)
			}})
		}),
	}
	cmd.AddCommand(a.planSchema())
	return cmd
}

func (a *app) planSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of plans", Args: arguments(0, ""), DisableFlagsInUseLine: true,
		Long: "Print the JSON schema of the plans of experiments, by which editors complete and check them.", ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.do(func(_ *cobra.Command, _ []string) error {
			text, err := plans.Schema()
			if err != nil {
				return err
			}
			return a.emitText("plan_schema", text)
		}),
	}
}

// experimentRow is an experiment of the catalogue.
type experimentRow struct {
	Name     string `json:"name"`
	Question string `json:"question"`
	Lab      string `json:"lab"`
	Cases    int    `json:"cases"`
	KPIs     int    `json:"kpis"`
}

// readPlan reads a file with a plan, and the policies that it names.
func (a *app) readPlan(ctx context.Context, path string) (plans.Plan, error) {
	text, err := a.fileText(ctx, "run", path)
	if err != nil {
		return plans.Plan{}, err
	}
	p, err := plans.Parse(path, text)
	if err != nil {
		return p, err
	}
	return p, policies(ctx, &p, path)
}

// policies reads those that a plan names and does not have: built-in ones, and files beside it.
func policies(ctx context.Context, p *plans.Plan, path string) error {
	for _, c := range p.Cases {
		name := c.Policy
		if name == "" || p.Policies[name] != nil {
			continue
		}
		file := name
		if strings.HasSuffix(name, ".yaml") && !filepath.IsAbs(name) {
			file = filepath.Dir(path) + "/" + name
		}
		called, text, err := policyfile.Load(ctx, file)
		if err != nil {
			return fmt.Errorf("%s: cases.%s.load.policy: %w", path, c.Name, err)
		}
		if _, err := policyfile.Parse(called, text); err != nil {
			return err
		}
		p.Policies[name] = text
	}
	return nil
}

// planCaller makes the calls by the agent.
type planCaller struct {
	agent Agent
	// folder and exporter are told of the calls as they end; nil for none.
	folder   *report.Folder
	exporter *report.Exporter
}

func (c planCaller) Calls(ctx context.Context, r probe.Request, policy string, text []byte, progress func(probe.Progress)) (experiment.Calls, error) {
	var calls experiment.Calls
	send := func([]byte, time.Duration) {}
	if c.exporter != nil {
		send = c.exporter.Of(r)
	}
	_, err := c.agent.RunProbe(ctx, r, client.ProbeRun{
		PolicyFile: policy, PolicyYAML: text, Progress: progress,
		Samples: func(lines []byte, unix time.Duration) error {
			calls.Unix = unix
			begin := len(calls.Samples)
			err := client.EachSample(lines, func(s probe.Sample) error {
				calls.Samples = append(calls.Samples, s)
				return nil
			})
			if c.folder != nil {
				c.folder.AddSamples(lines, calls.Samples[begin:], unix)
			}
			send(lines, unix)
			return err
		},
	})
	probe.BySeq(calls.Samples)
	return calls, err
}

// runExperiments runs one after the other, and tells and writes each as it ends. One that
// breaks off is the last one only where the next would, too.
func (a *app) runExperiments(ctx context.Context, all []plans.Plan, f runFlags) error {
	out := f.out
	exporter, err := a.exporter(f.collector)
	if err != nil {
		return err
	}
	defer a.sayExported(exporter)
	agent, err := a.dial()
	if err != nil {
		return err
	}
	defer agent.Close()
	if out != "" && f.force {
		if err := emptied(out); err != nil {
			return err
		}
	}
	done := make([]report.Experiment, len(all)) // as far as they have ended
	for i, p := range all {
		done[i] = unrun(p)
	}
	// written has all that ended so far, where several have one folder.
	written := func() error {
		if out == "" || len(all) == 1 {
			return nil
		}
		return report.WriteExperiments(out, report.Experiments{Experiments: done})
	}
	if out != "" {
		if err := errors.Join(report.Prepare(out), written()); err != nil {
			return err
		}
	}
	var broken error
	ended := 0
	for i, p := range all {
		dir := out
		if out != "" && len(all) > 1 {
			dir = filepath.Join(out, filepath.FromSlash(p.Name))
			if err := emptied(dir); err != nil {
				return errors.Join(broken, err)
			}
		}
		e, err := a.runPlan(ctx, agent, p, f, planOutputs{dir, exporter})
		done[i], ended = e, i+1
		err = errors.Join(err, written())
		if a.output != outJSON {
			err = errors.Join(err, a.emit(answer{kind: "run", data: e, table: experimentText(e)}))
		}
		broken = errors.Join(broken, err)
		if ctx.Err() != nil || errors.Is(err, client.ErrUnreachable) {
			break
		}
	}
	done = done[:ended]
	if a.output == outJSON {
		broken = errors.Join(broken, a.emit(answer{kind: "run", data: report.Experiments{Experiments: done}}))
	}
	if len(done) > 1 && a.output == outTable {
		summaryOf(done).write(a.out, a.style(a.env.StdoutTerminal))
	}
	if out != "" {
		a.say("result: %s", out)
	}
	return errors.Join(broken, verdicts(done))
}

// verdicts is the error that makes the exit code of all verdicts, the worst one.
func verdicts(all []report.Experiment) error {
	var failed, open []string
	for _, e := range all {
		switch e.Verdict {
		case kpi.Failed:
			failed = append(failed, e.Name)
		case kpi.Inconclusive:
			open = append(open, e.Name)
		}
	}
	switch {
	case len(failed) > 0:
		return fmt.Errorf("run: %w: %s", errFailed, strings.Join(failed, ", "))
	case len(open) > 0:
		return fmt.Errorf("run: %w: %s", errInconclusive, strings.Join(open, ", "))
	}
	return nil
}

// planOutputs are where a plan's run is written and sent to.
type planOutputs struct {
	dir      string
	exporter *report.Exporter
}

// runPlan carries one plan out, and writes it. The error is why it broke off; what was measured
// until then is judged nevertheless.
func (a *app) runPlan(ctx context.Context, agent Agent, p plans.Plan, f runFlags, to planOutputs) (e report.Experiment, err error) {
	pr := a.progress()
	defer pr.end()
	e = unrun(p)
	e.Started, e.Cases, e.Verdict, e.Reason = a.env.Now().Round(0), casesOf(p), "", ""
	where := a.machine(ctx, agent, p)
	e.Environment = environmentOf(where)
	var folder *report.Folder
	if to.dir != "" {
		if folder, err = report.Create(to.dir, p.Text, e, where, words); err != nil {
			e.Verdict, e.Reason, e.Ended = kpi.Inconclusive, err.Error(), a.env.Now().Round(0)
			return e, err
		}
	}
	observed, events, err := a.carryOut(ctx, agent, p, f, to, folder, pr)
	judged := experiment.Judge(p, observed)
	e.Runs, e.Tests = report.Commanded(observed)
	e.KPIs, e.Verdict = report.Judged(judged), experiment.Verdict(judged)
	e.Contrasts = report.Contrasts(experiment.Contrasts(observed))
	e.Phases, e.Ended = report.Phases(observed), a.env.Now().Round(0)
	if err != nil {
		e.Verdict, e.Reason = kpi.Inconclusive, reason(err)
	}
	if folder != nil {
		err = errors.Join(err, folder.Finish(e, observed, a.afterwards(where, events)))
	}
	return e, err
}

// carryOut has the plan run, and returns what happened to faults meanwhile, too.
func (a *app) carryOut(ctx context.Context, agent Agent, p plans.Plan, f runFlags, to planOutputs, folder *report.Folder, pr *progress) (observed experiment.Observations, events []experiment.Event, err error) {
	stop := func() {}
	if folder != nil || to.exporter != nil {
		stop = a.followFaults(ctx, agent, func(e experiment.Event) {
			events = append(events, e)
			if folder != nil {
				folder.AddEvent(e)
			}
			if to.exporter != nil {
				to.exporter.AddEvent(e)
			}
		})
	}
	observed, err = a.inLab(ctx, agent, p, f, to, folder, pr)
	stop() // no event comes after it
	return observed, events, err
}

// inLab holds the plan's lab and has the plan run in it.
func (a *app) inLab(ctx context.Context, agent Agent, p plans.Plan, f runFlags, to planOutputs, folder *report.Folder, pr *progress) (experiment.Observations, error) {
	in, release, err := a.planLab(ctx, agent, p.Lab, pr)
	if err != nil {
		return nil, brokeOff(ctx, "", err, nil, nil)
	}
	var commander experiment.Commander
	if p.Commands() {
		commander = &planCommand{app: a, agent: agent, plan: p, argv: f.argv, junit: f.junit, dir: to.dir, began: pr.end}
	}
	under := ""
	r := experiment.Runner{
		Plan: p, Caller: planCaller{agent, folder, to.exporter}, Faults: agent, Servers: a.servers(ctx, agent, p.Lab), Now: a.env.Now, Commander: commander,
		Progress: func(step string, at probe.Progress) {
			under = step
			pr.step(p.Name+": "+step, at.Done, at.Count)
		},
	}
	if folder != nil {
		r.Happened = folder.Happened
	}
	observed, err := r.Run(in)
	lost, released := release()
	return observed, brokeOff(ctx, under, err, lost, released)
}

// environmentOf is the machine as a result says it; nil where the agent did not answer.
func environmentOf(m report.Machine) *experiment.Environment {
	if m.Agent == "" {
		return nil
	}
	return &experiment.Environment{Kernel: m.Kernel, AgentVersion: m.Agent, ClientVersion: m.Client, GoVersion: m.AgentGo, Arch: m.Arch, CPUs: m.CPUs}
}

// summaryOf is a line for each of several experiments.
func summaryOf(all []report.Experiment) *table {
	t := &table{head: []string{"VERDICT", "EXPERIMENT", "TOOK", "WHAT DID NOT HOLD"}, right: map[int]bool{2: true}}
	for _, e := range all {
		why := e.Reason
		for _, k := range e.KPIs {
			if why == "" && k.Verdict != kpi.Passed {
				why = strings.TrimSpace(k.Condition + " " + k.Case)
			}
		}
		t.add(string(e.Verdict), e.Name, e.Took(), oneLine(errors.New(why)))
	}
	return t
}

func experimentText(e report.Experiment) func(io.Writer, style) {
	return func(w io.Writer, s style) {
		fmt.Fprintf(w, "%s: %s\n", s.bold(e.Name), paintKPI(s, e.Verdict))
		if e.Question != "" {
			wrap(w, e.Question)
		}
		fmt.Fprintln(w)
		t := table{head: []string{"VERDICT", "CASE", "CONDITION", "MEASURED", "REFERENCE"}}
		for _, k := range e.KPIs {
			t.add(paintKPI(s, k.Verdict), k.Case, k.Condition, k.Words(), k.Reference)
		}
		t.write(w, s)
		suiteText(w, s, e)
		fmt.Fprintln(w)
		for _, c := range e.Contrasts {
			wrap(w, c.Words())
		}
		wrap(w, fmt.Sprintf("%d repeats of each case, seed %d.", e.Repeats, e.Seed))
		if e.Reason != "" {
			wrap(w, "The run broke off: "+e.Reason)
		}
	}
}

func paintKPI(s style, v kpi.Verdict) string {
	switch v {
	case kpi.Passed:
		return s.good(string(v))
	case kpi.Failed:
		return s.bad(string(v))
	}
	return s.warning(string(v))
}
