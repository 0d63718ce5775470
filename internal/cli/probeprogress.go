package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"netemd/internal/report"
	"netemd/probe"
	"netemd/qdisc"
)

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
		switch {
		case what == p.last:
		case count == 0: // only a duration ends it
			fmt.Fprintln(p.w, what)
		default:
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
	if count == 0 {
		fmt.Fprintf(p.w, "\r\x1b[K%s  %d", what, done)
		return
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s  %d/%d", what, done, count)
}

// end leaves the line.
func (p *progress) end() {
	if p.terminal && p.last != "" {
		fmt.Fprintln(p.w)
	}
	p.last = ""
}

// probeProgress tells how far a probe is, in the same ways.
type probeProgress struct {
	progress
	request probe.Request
}

func (a *app) probeProgress(r probe.Request) *probeProgress {
	return &probeProgress{*a.progress(), r.WithDefaults()}
}

func (p *probeProgress) step(at probe.Progress) {
	begun := p.last != ""
	p.last = "probing"
	if !p.terminal {
		if !begun { // the agent has taken the request
			fmt.Fprintf(p.w, "probing %s (%s)\n", p.request.Target, callsText(p.request))
		}
		return
	}
	fmt.Fprint(p.w, "\r\x1b[K"+probeLine(p.request, at))
}

// probeLine says how far a probe is.
func probeLine(r probe.Request, at probe.Progress) string {
	parts := []string{"probing " + r.Target}
	done := fmt.Sprintf("%d calls", at.Done)
	if r.Count > 0 {
		done = fmt.Sprintf("%d/%d calls", at.Done, r.Count)
	}
	parts = append(parts, done)
	if s := at.Elapsed.Seconds(); s > 0 {
		parts = append(parts, report.Figure(float64(at.Done)/s)+"/s")
	}
	if at.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", at.Failed))
	}
	elapsed := qdisc.FormatDuration(at.Elapsed.Round(100 * time.Millisecond))
	if l := r.Length(); l > 0 {
		elapsed += " of " + qdisc.FormatDuration(l)
	} else if at.Done > 0 && at.Done < r.Count {
		left := time.Duration(float64(at.Elapsed) / float64(at.Done) * float64(r.Count-at.Done))
		elapsed += ", about " + qdisc.FormatDuration(left.Round(time.Second)) + " left"
	}
	parts = append(parts, elapsed)
	if at.P50 != nil {
		parts = append(parts, "p50 "+report.Time(at.P50), "p99 "+report.Time(at.P99))
	}
	return strings.Join(parts, "  ")
}
