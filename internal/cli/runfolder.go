package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"netemd/internal/experiment"
	plans "netemd/internal/experiment/plan"
	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/internal/report"
	"netemd/internal/version"
	"netemd/qdisc"
)

// runFiles are what a run leaves in its folder.
var runFiles = []string{
	report.ResultFile, report.SamplesFile, report.EventsFile, report.EnvironmentFile, report.PlanFile,
	report.JUnitFile, report.PageFile, report.IndexFile, report.TracesFile, report.CommandFolder,
}

// freeFolder refuses a folder that is used, and one that is none; nothing is changed. With force
// it takes a used one in which a run is.
func freeFolder(dir string, force bool) error {
	if dir == "" {
		return nil
	}
	found, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return outError(dir, err)
	case len(found) == 0:
		return nil
	}
	if !force {
		return fault.WithHint(&qdisc.FieldError{Field: "--out", Value: dir, Want: "a folder that is empty, or not there yet"},
			"name another folder, or take the run away that is in it: --force")
	}
	if _, err := os.Stat(filepath.Join(dir, report.ResultFile)); err != nil {
		return &qdisc.FieldError{Field: "--out", Value: dir, Want: "with --force a folder that a run has made: there is no " + report.ResultFile + " in it"}
	}
	return nil
}

// ownFolders refuses experiments of one name, which have one folder.
func ownFolders(dir string, all []plans.Plan) error {
	seen := map[string]bool{}
	for _, p := range all {
		if seen[p.Name] && dir != "" {
			return fault.WithHint(usageError{fmt.Errorf("run: two of the experiments are called %s, and --out has one folder of that name", p.Name)}, "run them one after the other, each with an --out of its own")
		}
		seen[p.Name] = true
	}
	return nil
}

func outError(dir string, err error) error {
	return &qdisc.FieldError{Field: "--out", Value: dir, Want: "the path of a folder: " + oneLine(err)}
}

// emptied takes away what an earlier run left in its folder, and nothing else.
func emptied(dir string) error {
	var all error
	for _, name := range runFiles {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			all = errors.Join(all, fmt.Errorf("run: %w", err))
		}
	}
	return all
}

// unjudged are the conditions of a plan before it is run.
func unjudged(p plans.Plan) []report.KPI {
	out := []report.KPI{}
	for _, c := range p.KPIs {
		out = append(out, report.KPI{
			Condition: c.Text, Reference: c.Reference, Why: c.Why, Measured: []report.Number{},
			Verdict: kpi.Inconclusive, Reason: "it has not begun", Repeats: []kpi.Verdict{},
		})
	}
	return out
}

// unrun is an experiment that has not ended.
func unrun(p plans.Plan) report.Experiment {
	return report.Experiment{
		Name: p.Name, Question: p.Question, Verdict: kpi.Inconclusive, Reason: "it has not ended", PlanSHA256: report.Hash(p.Text),
		Seed: p.Seed, Repeats: p.Repeats, Quick: p.Short, KPIs: unjudged(p),
	}
}

// casesOf are what a plan calls.
func casesOf(p plans.Plan) (out []report.Case) {
	for _, c := range p.Cases {
		out = append(out, report.CaseOf(c.Name, c.Load, c.Policy))
	}
	return out
}

// machine is where a run takes place, as far as it is known before it.
func (a *app) machine(ctx context.Context, agent Agent, p plans.Plan) report.Machine {
	m := report.Machine{
		Client: version.String(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), CPU: cpuModel(), LoadBefore: load(),
		Began: a.env.Now().Round(0), SameMachine: a.sameMachine(),
	}
	if v, err := agent.Version(ctx); err == nil {
		m.Kernel, m.Agent, m.AgentGo = v.Kernel, v.Version, v.GoVersion
	}
	if f, err := agent.Features(ctx); err == nil {
		m.Engine, m.EngineReason = string(f.Auto), f.AutoReason
	}
	if p.Lab == "" {
		return m
	}
	request, err := a.labRequest(ctx, p.Lab, "")
	if err != nil {
		return m
	}
	m.Lab, m.LabFile = request.Name, string(request.Text)
	return m
}

// afterwards adds what is known after the run.
func (a *app) afterwards(m report.Machine, events []experiment.Event) report.Machine {
	m.Ended, m.LoadAfter = a.env.Now().Round(0), load()
	for _, e := range events {
		if e.Engine != "" && !slices.Contains(m.Engines, e.Engine) {
			m.Engines = append(m.Engines, e.Engine)
		}
	}
	slices.Sort(m.Engines)
	return m
}

// load is the machine's own (proc(5), loadavg); nil where there is none.
func load() *report.Load {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return nil
	}
	var of [3]float64
	words := strings.Fields(string(text))
	if len(words) < len(of) {
		return nil
	}
	for i := range of {
		if of[i], err = strconv.ParseFloat(words[i], 64); err != nil {
			return nil
		}
	}
	return &report.Load{Of1Min: of[0], Of5Min: of[1], Of15Min: of[2]}
}

// cpuModel is what the processor calls itself (proc(5), cpuinfo); empty where it does not.
func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// sameMachine reports whether the agent runs where netemctl does: it is spoken to by a unix
// socket.
func (a *app) sameMachine() bool {
	e, err := a.endpoint()
	return err == nil && e.Address == ""
}
