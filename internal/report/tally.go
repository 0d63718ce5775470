package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"netemd/probe"
)

// bounds are the upper bounds of the histograms' buckets, in seconds: 1, 2 and 5 of each
// power of ten from 100 us to 500 s, so that they fit any kind of call.
var bounds = func() (all []float64) {
	for _, decade := range []float64{1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100} {
		for _, step := range []float64{1, 2, 5} {
			b, err := strconv.ParseFloat(strconv.FormatFloat(decade*step, 'g', 3, 64), 64)
			if err != nil {
				panic(err) // it was just written
			}
			all = append(all, b)
		}
	}
	return all
}()

// degraded stands in the place of a class where a fallback answered: its times are not
// the peer's.
const degraded probe.Class = "degraded"

// tally counts calls in buckets, by how they ended. Calls of the warm-up are not in it.
type tally struct {
	request probe.Request
	latency map[probe.Class]*histogram
	service map[probe.Class]*histogram
	// began and ended are Unix nanoseconds less the offset: the samples' clock.
	began, ended int64
}

type histogram struct {
	counts []uint64 // one more than bounds
	count  uint64
	sum    float64 // seconds
}

func newTally(r probe.Request) *tally {
	return &tally{request: r, latency: map[probe.Class]*histogram{}, service: map[probe.Class]*histogram{}}
}

func (t *tally) add(s probe.Sample) {
	if s.Warmup {
		return
	}
	if t.began == 0 || s.StartNS < t.began {
		t.began = s.StartNS
	}
	t.ended = max(t.ended, s.EndNS)
	class := s.Class
	if s.Degraded != "" {
		class = degraded
	}
	observe(t.latency, class, s.Latency())
	observe(t.service, class, s.Duration())
}

func observe(m map[probe.Class]*histogram, c probe.Class, d time.Duration) {
	h := m[c]
	if h == nil {
		h = &histogram{counts: make([]uint64, len(bounds)+1)}
		m[c] = h
	}
	v := d.Seconds()
	i, _ := slices.BinarySearch(bounds, v) // a value on a bound is below it: le
	h.counts[i]++
	h.count++
	h.sum += v
}

// series is one number of a counter, with the label that tells it from the others.
type series struct {
	label, value string
	n            int
}

// counter is a family of them.
type counter struct {
	name, help string
	series     []series
}

// counters are what a summary counts.
func counters(s probe.Summary) []counter {
	all := []counter{
		{"netemd_probe_attempts", "Attempts that reached for the network.", []series{{n: s.Attempts}}},
		{"netemd_probe_warmup_calls", "Calls of the warm-up, which are in nothing else.", []series{{n: s.Warmup}}},
		{"netemd_probe_slow_calls", "Calls above the threshold, by cause.", by("cause", s.Causes)},
		{"netemd_probe_retransmissions", "Segments that a kernel sent again during the calls, by cause.", by("cause", s.Retransmissions)},
	}
	if IsOpen(s) {
		all = append(all, counter{"netemd_probe_not_started_calls", "Calls that were due and could not begin before the run's end, which are in nothing else.", []series{{n: s.Load.NotStarted}}})
	}
	var events []series
	for _, policy := range slices.Sorted(maps.Keys(s.Policy)) {
		for _, x := range by("event", s.Policy[policy]) {
			events = append(events, series{label: "event", value: policy + "." + x.value, n: x.n})
		}
	}
	return append(all, counter{"netemd_probe_policy_events", "What the client policy did, as policy.event.", events})
}

func by[K ~string](label string, m map[K]int) (out []series) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, series{label, string(k), m[k]})
	}
	return out
}

// openMetrics writes OpenMetrics 1.0 text.
func (t *tally) openMetrics(w io.Writer, res ProbeResult) error {
	var b strings.Builder
	common := fmt.Sprintf(`target="%s",kind="%s",layer="%s"`, escaped(res.Target), escaped(res.Kind), escaped(res.Layer))
	for _, f := range []struct {
		name, help string
		of         map[probe.Class]*histogram
	}{
		{"netemd_probe_latency_seconds", "Time from when a call was due to its end, by how it ended.", t.latency},
		{"netemd_probe_service_time_seconds", "Time from a call's start to its end, by how it ended.", t.service},
	} {
		fmt.Fprintf(&b, "# TYPE %s histogram\n# UNIT %s seconds\n# HELP %s %s\n", f.name, f.name, f.name, f.help)
		for _, class := range slices.Sorted(maps.Keys(f.of)) {
			h := f.of[class]
			labels := fmt.Sprintf(`%s,class="%s"`, common, escaped(string(class)))
			sum := uint64(0)
			for i, n := range h.counts {
				le := "+Inf"
				if i < len(bounds) {
					le = canonicalFloat(bounds[i])
				}
				sum += n
				fmt.Fprintf(&b, "%s_bucket{%s,le=\"%s\"} %d\n", f.name, labels, le, sum)
			}
			fmt.Fprintf(&b, "%s_count{%s} %d\n%s_sum{%s} %s\n", f.name, labels, h.count, f.name, labels, canonicalFloat(h.sum))
		}
	}
	for _, c := range counters(res.Summary) {
		fmt.Fprintf(&b, "# TYPE %s counter\n# HELP %s %s\n", c.name, c.name, c.help)
		for _, s := range c.series {
			labels := common
			if s.label != "" {
				labels += fmt.Sprintf(`,%s="%s"`, s.label, escaped(s.value))
			}
			fmt.Fprintf(&b, "%s_total{%s} %d\n", c.name, labels, s.n)
		}
	}
	writeEnvironment(&b, res.Environment, common)
	b.WriteString("# EOF\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// canonicalFloat is a number as OpenMetrics wants bounds: with a point or an exponent.
func canonicalFloat(v float64) string {
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".eE") {
		s += ".0"
	}
	return s
}

var escaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

func escaped(label string) string { return escaper.Replace(label) }
