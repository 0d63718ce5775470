package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"netemd/internal/experiment"
	"netemd/probe"
)

// timeline is one repeat over time: when calls were due and how long they took, the times of
// faults, attempts in bins below, and what a breaker did.
type timeline struct {
	Class         string
	Width, Height float64
	FontSize      float64
	X0, X1        float64
	Y0, Y1        float64
	Base          float64 // of the attempts
	XTicks        []tick
	YTicks        []tick
	Windows       []box
	Columns       []box
	Peak          string
	Dots          string // the path of all answered calls
	Bad           string // the path of all failed ones
	Spared        string // the path of those that the policy refused
	Events        []mark
}

type box struct{ X, Y, W, H float64 }

// mark is something that a policy did.
type mark struct {
	X     float64
	Label string
}

const (
	// maxDots is how many calls a timeline draws; of more it takes the slowest, the quickest and
	// the first of each column.
	maxDots = 3000
	// columns are the bins of attempts.
	columns = 120
	// maxMarks is how many events have a line.
	maxMarks = 60
)

// timelinesOf draws a repeat, for a wide and a narrow window; none where no calls were made.
func timelinesOf(of []experiment.Observation) []timeline {
	begin, end := int64(math.MaxInt64), int64(math.MinInt64)
	lo, hi := math.Inf(1), math.Inf(-1)
	var samples []probe.Sample
	var faults []experiment.Span
	for _, x := range of {
		for _, s := range x.Samples {
			at := cmp.Or(s.DueNS, s.StartNS)
			begin, end = min(begin, at), max(end, s.EndNS)
			if s.Class != probe.Rejected {
				took := max(0.05, milliseconds(s))
				lo, hi = min(lo, took), max(hi, took)
			}
			samples = append(samples, s)
		}
		faults = append(faults, x.Faults...)
	}
	if len(samples) == 0 || math.IsInf(lo, 1) || end <= begin {
		return nil
	}
	slices.SortStableFunc(samples, func(a, b probe.Sample) int { return cmp.Compare(a.StartNS, b.StartNS) })
	var out []timeline
	for _, size := range []timeline{
		{Class: "wide", Width: 940, Height: 330, FontSize: 12.5},
		{Class: "narrow", Width: 340, Height: 300, FontSize: 12.5},
	} {
		t := size
		t.X0, t.X1, t.Y1, t.Y0, t.Base = 52, t.Width-14, 26, t.Height-112, t.Height-40
		a := axes{t: &t, begin: begin, end: end, lo: niceBelow(lo), hi: niceAbove(max(hi, niceBelow(lo)*10))}
		a.ticks()
		a.windows(faults)
		a.calls(samples)
		a.attempts(samples)
		a.events(samples)
		out = append(out, t)
	}
	return out
}

func milliseconds(s probe.Sample) float64 { return float64(s.Latency()) / 1e6 }

// axes place things in a timeline.
type axes struct {
	t          *timeline
	begin, end int64
	lo, hi     float64
}

func (a axes) x(ns int64) float64 {
	share := float64(ns-a.begin) / float64(a.end-a.begin)
	return a.t.X0 + min(1, max(0, share))*(a.t.X1-a.t.X0)
}

func (a axes) y(ms float64) float64 {
	share := math.Log(max(ms, a.lo)/a.lo) / math.Log(a.hi/a.lo)
	return a.t.Y0 - share*(a.t.Y0-a.t.Y1)
}

func (a axes) ticks() {
	whole := float64(a.end-a.begin) / 1e9
	step := niceAbove(whole / (a.t.Width / 110))
	for s := 0.; s <= whole; s += step {
		a.t.XTicks = append(a.t.XTicks, tick{At: a.x(a.begin + int64(s*1e9)), Label: fmt.Sprintf("%g s", math.Round(s*1000)/1000)})
	}
	for v := math.Pow(10, math.Floor(math.Log10(a.lo))); v <= a.hi*1.001; v *= 10 {
		if v >= a.lo*0.999 {
			a.t.YTicks = append(a.t.YTicks, tick{At: a.y(v), Label: axisTime(v)})
		}
	}
}

// windows are the times of faults, each once.
func (a axes) windows(faults []experiment.Span) {
	slices.SortFunc(faults, func(x, y experiment.Span) int {
		return cmp.Or(cmp.Compare(x.Begin, y.Begin), cmp.Compare(x.End, y.End))
	})
	for _, f := range slices.Compact(faults) {
		from, to := a.x(f.Begin), a.x(f.End)
		if to > from {
			a.t.Windows = append(a.t.Windows, box{from, a.t.Y1, to - from, a.t.Base - a.t.Y1})
		}
	}
}

// calls draws each call once, and of too many those that matter.
func (a axes) calls(samples []probe.Sample) {
	var dots, bad, spared strings.Builder
	for _, s := range thin(samples) {
		x := a.x(cmp.Or(s.DueNS, s.StartNS))
		y := a.y(milliseconds(s))
		switch {
		case s.Class == probe.Rejected:
			fmt.Fprintf(&spared, "M%.1f %.1fv5", x, a.t.Y0+3)
		case s.Class != probe.OK:
			fmt.Fprintf(&bad, "M%.1f %.1fl6 6m-6 0l6-6", x-3, y-3)
		default:
			fmt.Fprintf(&dots, "M%.1f %.1fa1.8 1.8 0 1 0 3.6 0a1.8 1.8 0 1 0-3.6 0", x-1.8, y)
		}
	}
	a.t.Dots, a.t.Bad, a.t.Spared = dots.String(), bad.String(), spared.String()
}

// thin takes the slowest and the quickest of each class in as many groups of neighbours as
// there is room for, so that no outlier is lost.
func thin(samples []probe.Sample) []probe.Sample {
	if len(samples) <= maxDots {
		return samples
	}
	group := (4*len(samples) + maxDots - 1) / maxDots
	var out []probe.Sample
	for part := range slices.Chunk(samples, group) {
		extreme := map[probe.Class][2]int{}
		for i, s := range part {
			e, ok := extreme[s.Class]
			if !ok {
				e = [2]int{i, i}
			}
			if milliseconds(s) < milliseconds(part[e[0]]) {
				e[0] = i
			}
			if milliseconds(s) > milliseconds(part[e[1]]) {
				e[1] = i
			}
			extreme[s.Class] = e
		}
		var chosen []int
		for _, e := range extreme {
			chosen = append(chosen, e[0], e[1])
		}
		slices.Sort(chosen)
		for _, i := range slices.Compact(chosen) {
			out = append(out, part[i])
		}
	}
	return out
}

// attempts are columns below the calls.
func (a axes) attempts(samples []probe.Sample) {
	var bins [columns]int
	peak := 0
	for _, s := range samples {
		for _, one := range s.Tries() {
			i := int(float64(one.StartNS-a.begin) / float64(a.end-a.begin) * columns)
			if i = min(columns-1, max(0, i)); i >= 0 {
				bins[i]++
				peak = max(peak, bins[i])
			}
		}
	}
	if peak == 0 {
		return
	}
	room, width := a.t.Base-a.t.Y0-30, (a.t.X1-a.t.X0)/columns
	for i, n := range bins {
		if n > 0 {
			h := float64(n) / float64(peak) * room
			a.t.Columns = append(a.t.Columns, box{a.t.X0 + float64(i)*width, a.t.Base - h, width * .85, h})
		}
	}
	each := float64(a.end-a.begin) / columns / 1e6
	a.t.Peak = fmt.Sprintf("attempts, at most %d in %s", peak, Time(&each))
}

// events are what breakers did, of calls and attempts.
func (a axes) events(samples []probe.Sample) {
	var all []probe.PolicyEvent
	for _, s := range samples {
		all = append(all, s.Policy...)
		for _, one := range s.Attempts {
			all = append(all, one.Policy...)
		}
	}
	slices.SortStableFunc(all, func(x, y probe.PolicyEvent) int { return cmp.Compare(x.TimeNS, y.TimeNS) })
	for _, e := range all {
		label, ok := map[string]string{"opened": "open", "half_opened": "half-open", "closed": "closed"}[e.Event]
		if e.Policy == "breaker" && ok && len(a.t.Events) < maxMarks {
			a.t.Events = append(a.t.Events, mark{a.x(e.TimeNS), label})
		}
	}
}
