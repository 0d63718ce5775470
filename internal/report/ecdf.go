package report

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"netemd/internal/experiment"
	"netemd/probe"
)

// curve is the empirical distribution of one row: the share of all its calls
// that had succeeded after a time. Failed calls never do, so it ends below 100 %.
type curve struct {
	Layer string
	// Steps are the sorted durations of the successful calls in ms.
	Steps []float64
	Count int
}

// curves takes one curve from each row with samples.
func curves(rows []experiment.Row) []curve {
	var out []curve
	for _, r := range rows {
		c := curve{Layer: r.Layer}
		for _, s := range r.Samples {
			c.add(s)
		}
		if c.sort(); len(c.Steps) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func (c *curve) add(s probe.Sample) {
	if s.Warmup {
		return
	}
	c.Count++
	if s.Class == probe.OK && s.Degraded == "" {
		c.Steps = append(c.Steps, float64(s.Latency())/1e6)
	}
}

func (c *curve) sort() { sort.Float64s(c.Steps) }

// plot is an ECDF's frame in SVG units.
type plot struct {
	Width, Height            float64
	left, right, top, bottom float64
	min, max                 float64 // of the x axis in ms, whole decades
	// FontSize of the axis texts.
	FontSize float64
	// narrow leaves out what has no room on a telephone.
	narrow bool
}

func newPlot(width, height float64, cs []curve, narrow bool) plot {
	p := plot{Width: width, Height: height, left: 46, right: 14, top: 30, bottom: 46, FontSize: 12.5, narrow: narrow}
	lo, hi := math.Inf(1), math.Inf(-1)
	for _, c := range cs {
		lo, hi = min(lo, c.Steps[0]), max(hi, c.Steps[len(c.Steps)-1])
	}
	if len(cs) == 0 {
		lo, hi = 1, 1000
	}
	p.min = niceBelow(max(lo, 0.01))
	p.max = niceAbove(max(hi, p.min*10))
	return p
}

// niceBelow and niceAbove are the next 1, 2 or 5 times a power of ten.
func niceBelow(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{5, 2} {
		if f*decade <= v {
			return f * decade
		}
	}
	return decade
}

func niceAbove(v float64) float64 {
	decade := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*decade >= v {
			return f * decade
		}
	}
	return 10 * decade
}

func (p plot) x(ms float64) float64 {
	share := math.Log(ms/p.min) / math.Log(p.max/p.min)
	return p.left + share*(p.Width-p.left-p.right)
}

func (p plot) y(share float64) float64 {
	return p.top + (1-share)*(p.Height-p.top-p.bottom)
}

// Path is the curve as the d attribute of an SVG path: steps, from 0 % up.
func (p plot) path(c curve) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%.1f %.1f", p.left, p.y(0))
	for i, ms := range c.Steps {
		fmt.Fprintf(&b, "H%.1f", p.x(max(ms, p.min)))
		// Equal times, as drawn, make one step.
		if i+1 < len(c.Steps) && p.x(c.Steps[i+1])-p.x(ms) < 0.05 {
			continue
		}
		fmt.Fprintf(&b, "V%.1f", p.y(float64(i+1)/float64(c.Count)))
	}
	fmt.Fprintf(&b, "H%.1f", p.Width-p.right)
	return b.String()
}

// tick is a mark on an axis.
type tick struct {
	At    float64
	Label string
	// Anchor is the label's text-anchor.
	Anchor string
	// Minor ticks have a fainter line and no label.
	Minor bool
}

func (p plot) xTicks() []tick {
	var out []tick
	whole := map[int]bool{} // those of 1, 10, 100
	// A short axis has labels at 1, 2 and 5, a long one at 1.
	labelled := map[int]bool{1: true}
	if p.max/p.min < 300 {
		labelled[2], labelled[5] = true, true
	}
	for decade := math.Pow(10, math.Floor(math.Log10(p.min))); decade <= p.max*1.001; decade *= 10 {
		for f := 1; f < 10; f++ {
			v := decade * float64(f)
			if v < p.min*0.999 || v > p.max*1.001 {
				continue
			}
			whole[len(out)] = f == 1
			out = append(out, tick{At: p.x(v), Label: axisTime(v), Minor: !labelled[f]})
		}
	}
	p.label(out, whole)
	return out
}

// label leaves the labels that have room, first those of whole.
func (p plot) label(ticks []tick, whole map[int]bool) {
	const width, apart = 0.62, 6 // of a character in font sizes, and between labels
	type span struct{ from, to float64 }
	var taken []span
	for _, first := range []bool{true, false} {
		for i := range ticks {
			t := &ticks[i]
			if t.Minor || whole[i] != first {
				continue
			}
			w := width * p.FontSize * float64(len(t.Label))
			s := span{t.At - w/2, t.At + w/2}
			if t.Anchor = "middle"; s.to > p.Width {
				t.Anchor, s = "end", span{t.At - w, t.At}
			}
			if slices.ContainsFunc(taken, func(o span) bool { return s.from < o.to+apart && o.from < s.to+apart }) {
				t.Label = ""
				continue
			}
			taken = append(taken, s)
		}
	}
}

func (p plot) yTicks() []tick {
	var out []tick
	for _, percent := range []int{0, 25, 50, 75, 90, 99} {
		out = append(out, tick{At: p.y(float64(percent) / 100), Label: fmt.Sprintf("%d%%", percent)})
	}
	return out
}

// axisTime is a time of the axis: "1 ms", "10 s".
func axisTime(ms float64) string {
	if ms >= 1000 {
		return fmt.Sprintf("%g s", math.Round(ms)/1000)
	}
	return fmt.Sprintf("%g ms", math.Round(ms*1000)/1000)
}

// reference is a time that the kernel is known for.
type reference struct {
	X     float64
	Label string
}

// references are TCP's own times: TCP_RTO_MIN and TCP_TIMEOUT_INIT of
// include/net/tcp.h.
func (p plot) references() []reference {
	var out []reference
	for _, r := range []struct {
		ms          float64
		wide, short string
	}{
		{200, "200 ms: shortest retransmission timeout", "RTO 200 ms"},
		{1000, "1 s: first SYN retry", "SYN 1 s"},
	} {
		if r.ms <= p.min || r.ms >= p.max {
			continue
		}
		label := r.wide
		if p.narrow {
			label = r.short
		}
		out = append(out, reference{X: p.x(r.ms), Label: label})
	}
	return out
}
