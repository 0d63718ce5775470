package report

import (
	"fmt"
	"io"
	"slices"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/kpi"
	"netemd/probe"
)

// runPage is what the page of an experiment sees.
type runPage struct {
	Experiment
	Headline string
	Cases    []runCase
	Facts    [][2]string
	// HasReference says that some condition has one.
	HasReference bool
}

// runCase is what was measured of one case, all repeats together.
type runCase struct {
	Name   string
	Phases []phaseRow
	Curves []curve
	Plots  []plotData
	// Timelines are of repeats that one run went through, the first ones only.
	Timelines []timelines
	// Omitted are the repeats that have none.
	Omitted int
	Void    []string
}

// timelines are the same repeat for a wide and for a narrow window.
type timelines struct {
	Repeat int
	Of     []timeline
}

// phaseRow is a phase in numbers.
type phaseRow struct {
	Phase string
	probe.Summary
	Asked, Measured string
}

// maxTimelines is how many repeats of a case are drawn over time.
const maxTimelines = 3

// phases are in the order in which they come.
var phases = []string{kpi.Control, kpi.Warmup, kpi.Fault, kpi.Recovery, experiment.AllPhases}

// WriteRunHTML writes the page of an experiment: it needs no network, script or font from
// elsewhere.
func WriteRunHTML(w io.Writer, e Experiment, o experiment.Observations) error {
	p := runPage{Experiment: e, Headline: e.Name + ": " + string(e.Verdict), Facts: e.facts()}
	for _, k := range e.KPIs {
		p.HasReference = p.HasReference || k.Reference != ""
	}
	var names []string
	for _, x := range o {
		if !slices.Contains(names, x.Case) {
			names = append(names, x.Case)
		}
	}
	for _, name := range names {
		p.Cases = append(p.Cases, caseOf(name, o))
	}
	return pages().ExecuteTemplate(w, "run.html", p)
}

func (e Experiment) facts() [][2]string {
	out := [][2]string{
		{"Repeats of each case", fmt.Sprint(e.Repeats)},
		{"Seed", fmt.Sprint(e.Seed)},
		{"Plan", e.planWords()},
	}
	if !e.Started.IsZero() {
		out = append(out, [2]string{"Started", e.Started.Format(time.RFC3339)})
	}
	if !e.Ended.IsZero() {
		out = append(out, [2]string{"Took", e.Took()})
	}
	if v := e.Environment; v != nil {
		out = append(out,
			[2]string{"Kernel", v.Kernel}, [2]string{"Machine", fmt.Sprintf("%s, %d CPUs", v.Arch, v.CPUs)},
			[2]string{"Versions", fmt.Sprintf("netemd %s, netemctl %s, %s", v.AgentVersion, v.ClientVersion, v.GoVersion)})
	}
	return slices.DeleteFunc(out, func(f [2]string) bool { return f[1] == "" })
}

func (e Experiment) planWords() string {
	if e.PlanSHA256 == "" {
		return ""
	}
	return PlanFile + ", sha256 " + e.PlanSHA256
}

func caseOf(name string, o experiment.Observations) runCase {
	c := runCase{Name: name}
	for _, phase := range phases {
		row := phaseRow{Phase: phase}
		rec := probe.NewRecorder(name, "", probe.SlowThreshold)
		of := curve{Layer: phase}
		measured := false
		for _, x := range o {
			if x.Case != name || x.Phase != phase {
				continue
			}
			measured = true
			for _, s := range x.Samples {
				rec.Add(s)
				of.add(s)
			}
			if x.Void != "" {
				c.Void = append(c.Void, fmt.Sprintf("%s, repeat %d: %s", phase, x.Repeat, x.Void))
			}
			if x.Counters != nil && x.Counters.Seen > 0 {
				row.Asked = fmt.Sprintf("%.4g %%", 100*x.Asked)
			}
		}
		if !measured {
			continue
		}
		row.Summary = rec.Summary("")
		row.Measured = measuredLoss(name, phase, o)
		c.Phases = append(c.Phases, row)
		if of.sort(); len(of.Steps) > 0 {
			c.Curves = append(c.Curves, of)
		}
	}
	if len(c.Curves) > 0 {
		c.Plots = []plotData{
			drawn("wide", newPlot(940, 360, c.Curves, false), c.Curves),
			drawn("narrow", newPlot(340, 300, c.Curves, true), c.Curves),
		}
	}
	c.draw(o)
	return c
}

// draw makes the timelines of the repeats that one run went through.
func (c *runCase) draw(o experiment.Observations) {
	repeats := map[int][]experiment.Observation{}
	last := 0
	for _, x := range o {
		if x.Case == c.Name && x.Repeat > 0 {
			repeats[x.Repeat] = append(repeats[x.Repeat], x)
			last = max(last, x.Repeat)
		}
	}
	for r := 1; r <= last; r++ {
		of := timelinesOf(repeats[r])
		switch {
		case len(of) == 0:
		case len(c.Timelines) < maxTimelines:
			c.Timelines = append(c.Timelines, timelines{r, of})
		default:
			c.Omitted++
		}
	}
}

// measuredLoss is the share of packets that a phase's fault lost, of all repeats.
func measuredLoss(name, phase string, o experiment.Observations) string {
	var seen, lost uint64
	for _, x := range o {
		if x.Case == name && x.Phase == phase && x.Counters != nil {
			seen, lost = seen+x.Counters.Seen, lost+x.Counters.Lost
		}
	}
	if seen == 0 {
		return ""
	}
	low, high := kpi.Interval(kpi.Rate(int(lost), int(seen)))
	return fmt.Sprintf("%.4g %% of %d (%.3g..%.3g)", 100*float64(lost)/float64(seen), seen, 100*low, 100*high)
}
