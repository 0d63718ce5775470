package report

import (
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/kpi"
	"netemd/probe"
)

//go:embed *.html
var pageFiles embed.FS

// pages are parsed at their first use, since most commands have none.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("pages").Funcs(template.FuncMap{
		"time":    Time,
		"percent": Percent,
		"class":   class,
		"whole":   whole,
		"errors":  func(r experiment.Row) string { return Errors(r.Summary) },
		"sign":    sign, "failures": Errors, "slow": Slow, "causes": Causes,
	}).ParseFS(pageFiles, "*.html"))
})

// spaced finds a number and its unit.
var spaced = regexp.MustCompile(`(\d) (ms|s|%)(\W|$)`)

// whole keeps a number and its unit on one line.
func whole(text string) string { return spaced.ReplaceAllString(text, "$1\u00a0$2$3") }

// class is a layer's name as a CSS class.
func class(layer string) string { return strings.ReplaceAll(layer, "+", "-") }

// pageData is what the page's template sees.
type pageData struct {
	experiment.Comparison
	Sentences []string
	Headline  string
	Curves    []curve
	Plots     []plotData
	Causes    []causeRow
	// Made says how the calls were made, Details what not every kind of them has.
	Made     string
	Details  [][2]string
	Loss     string
	Meanings []meaning
	Facts    [][2]string
	NoTail   bool
}

type plotData struct {
	plot
	Class      string
	Paths      []pathData
	XTicks     []tick
	YTicks     []tick
	References []reference
	X0, X1     float64
	Y0, Y1     float64
}

type pathData struct{ Layer, D string }

type causeRow struct {
	Layer string
	Slow  int
	// Explained is null without a slow call.
	Explained *float64
	Parts     []causePart
}

type causePart struct {
	Cause probe.Cause
	N     int
	// Share of the row's calls, in percent.
	Share float64
}

type meaning struct{ Layer, Text string }

// WriteHTML writes a page that needs no network, script or font from elsewhere.
func WriteHTML(w io.Writer, c experiment.Comparison) error {
	if len(c.Rows) == 0 {
		return errors.New("a comparison without a row has no page")
	}
	d := pageData{
		Comparison: c, Sentences: Explain(c), Headline: headline(c), Curves: curves(c.Rows),
		Made: made(c), Details: RowDetails(c), Loss: LossLine(c.Row(experiment.LayerPacket)), Meanings: meanings(c), Facts: facts(c),
	}
	packet, lat := c.Row(experiment.LayerPacket), c.Row(experiment.LayerProxyLatency)
	d.NoTail = packet != nil && lat != nil && packet.P99 != nil && lat.P99 != nil && *packet.P99 >= 2**lat.P99
	d.Plots = []plotData{
		drawn("wide", newPlot(940, 430, d.Curves, false), d.Curves),
		drawn("narrow", newPlot(340, 360, d.Curves, true), d.Curves),
	}
	shown := occurring(c.Rows)
	for _, r := range c.Rows {
		d.Causes = append(d.Causes, causesOf(r, shown))
	}
	return pages().ExecuteTemplate(w, "compare.html", d)
}

func drawn(class string, p plot, cs []curve) plotData {
	d := plotData{
		plot: p, Class: class, YTicks: p.yTicks(), References: p.references(),
		X0: p.left, X1: p.Width - p.right, Y0: p.y(0), Y1: p.y(1),
	}
	d.XTicks = p.xTicks()
	for _, c := range cs {
		d.Paths = append(d.Paths, pathData{Layer: c.Layer, D: p.path(c)})
	}
	return d
}

// occurring are the causes that some row has, and unknown, whose 0 is worth saying.
func occurring(rows []experiment.Row) []probe.Cause {
	var out []probe.Cause
	for _, cause := range CauseOrder {
		if cause == probe.Unknown || slices.ContainsFunc(rows, func(r experiment.Row) bool { return r.Causes[cause] > 0 }) {
			out = append(out, cause)
		}
	}
	return out
}

func causesOf(r experiment.Row, shown []probe.Cause) causeRow {
	out := causeRow{Layer: r.Layer, Slow: Slow(r.Summary), Explained: r.Explained}
	for _, cause := range shown {
		n := r.Causes[cause]
		out.Parts = append(out.Parts, causePart{Cause: cause, N: n, Share: 100 * float64(n) / float64(max(1, r.Count))})
	}
	return out
}

func headline(c experiment.Comparison) string {
	none, packet, lat := c.Row(experiment.LayerNone), c.Row(experiment.LayerPacket), c.Row(experiment.LayerProxyLatency)
	switch {
	case !c.Conclusive:
		return fmt.Sprintf("%s: inconclusive", c.Asked)
	case none == nil || packet == nil || none.P99 == nil || packet.P99 == nil:
		return c.Asked
	case lat == nil || lat.P99 == nil:
		return fmt.Sprintf("%s: p99 goes from %s to %s", c.Asked, Time(none.P99), Time(packet.P99))
	}
	return fmt.Sprintf("%s: p99 goes from %s to %s, a proxy of the same median shows %s",
		c.Asked, Time(none.P99), Time(packet.P99), Time(lat.P99))
}

func meanings(c experiment.Comparison) []meaning {
	var out []meaning
	for _, r := range c.Rows {
		m := meaning{Layer: r.Layer}
		switch r.Layer {
		case experiment.LayerNone:
			m.Text = "The control run: client to server directly, nothing impaired."
		case experiment.LayerPacket:
			m.Text = fmt.Sprintf("The same path with %s, carried out on packets by the %s engine. "+
				"TCP on both ends notices the loss and repairs it, which takes its time.", c.Asked, r.Engine)
		case experiment.LayerProxy:
			m.Text = "Through a TCP proxy that does nothing: what the proxy itself costs."
		case experiment.LayerProxyLatency:
			m.Text = "Through the proxy with a latency toxic, made to have the packet row's median."
			if l := c.Latency; l != nil {
				m.Text += fmt.Sprintf(" It adds %g ms to each answer of the server; a call has %g answers that it delays "+
					"(measured by %d calls at %g ms).", l.AddedMS, l.Turns, l.CalibrationCalls, l.CalibrationMS)
			}
		}
		out = append(out, m)
	}
	return out
}

// made says how the calls of each row were made.
func made(c experiment.Comparison) string {
	var parts []string
	if c.Count > 0 {
		parts = append(parts, fmt.Sprintf("%d calls for each row", c.Count))
	} else {
		parts = append(parts, fmt.Sprintf("Calls for %s for each row", Time(&c.DurationMS)))
	}
	if c.Concurrency > 0 {
		parts = append(parts, fmt.Sprintf("%d at a time", c.Concurrency))
	} else {
		parts = append(parts, "each when it is due, whatever the others do")
	}
	budget := "within its budget of " + Time(&c.TimeoutMS)
	if c.Policy != "" {
		budget = "under the client policy " + c.Policy
	}
	return fmt.Sprintf("%s, each %s %s", strings.Join(parts, ", "), c.Calls, budget)
}

// apart says the pace of a closed loop, where there is one.
func apart(c experiment.Comparison) string {
	if c.Concurrency == 0 || c.PaceMS == 0 {
		return ""
	}
	return fmt.Sprintf(", started %s apart at least", Time(&c.PaceMS))
}

func facts(c experiment.Comparison) [][2]string {
	out := [][2]string{
		{"Target", c.Target},
		{"Calls", made(c) + apart(c)},
		{"Client policy", c.Policy},
		{"Engine", fmt.Sprintf("%s (%s)", c.Engine, c.EngineReason)},
		{"Direction", string(c.Direction)},
		{"Placement", strings.Join(c.Placement, "; ")},
		{"Kernel", c.Environment.Kernel},
		{"Machine", fmt.Sprintf("%s, %d CPUs", c.Environment.Arch, c.Environment.CPUs)},
		{"Versions", fmt.Sprintf("netemd %s, netemctl %s, %s",
			c.Environment.AgentVersion, c.Environment.ClientVersion, c.Environment.GoVersion)},
		{"Started", c.Started.Format(time.RFC3339)},
		{"Took", c.Ended.Sub(c.Started).Round(time.Second).String()},
	}
	if r := c.Row(experiment.LayerPacket); r != nil && r.Evidence != "" {
		out = append(out, [2]string{"Evidence of causes", r.Evidence})
	}
	kept := out[:0]
	for _, f := range out {
		if f[1] != "" {
			kept = append(kept, f)
		}
	}
	return kept
}

// sign stands beside a verdict, for who does not see its colour.
func sign(v kpi.Verdict) string {
	switch v {
	case kpi.Passed:
		return "\u2713"
	case kpi.Failed:
		return "\u2717"
	}
	return "?"
}
