package fault

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"netemd/qdisc"
)

// The resolutions and bounds of what a proxy can be asked for. Toxiproxy counts
// whole milliseconds (but whole microseconds between slices) and whole KB/s of
// 1000 bytes.
const (
	toxicStep     = time.Millisecond
	toxicPause    = time.Microsecond
	toxicRate     = qdisc.Rate(1000)
	maxToxicTime  = MaxTTL
	maxToxicRate  = 100_000_000 * toxicRate
	maxSliceSize  = qdisc.Bytes(1 << 30)
	toxicityParts = 10_000 // of one percent; float32 on the wire carries no more
)

// uses says which fields a kind has, by the names in field paths. Stream and
// toxicity belong to every kind but Down.
var uses = map[ToxicKind][]string{
	Latency:   {"latency", "jitter"},
	Timeout:   {"timeout"},
	ResetPeer: {"timeout"},
	LimitData: {"bytes"},
	Bandwidth: {"rate"},
	Slicer:    {"average_size", "size_variation", "delay"},
	SlowClose: {"delay"},
	Down:      nil,
}

// Normalize returns t with its defaults written out: Stream is Downstream and
// Toxicity 100 %; a Down has neither.
func (t Toxic) Normalize() Toxic {
	if t.Kind == Down {
		t.Stream, t.Toxicity, t.Seed = "", 0, 0
		return t
	}
	if t.Stream == "" {
		t.Stream = Downstream
	}
	if t.Toxicity == 0 {
		t.Toxicity = 100
	}
	return t
}

// NormalizeToxics returns toxics as a proxy that has them reads back: each
// normalized, a Down before all others, then the upstream side, then the
// downstream side. Two lists ask for the same when these are equal.
func NormalizeToxics(toxics []Toxic) []Toxic {
	side := func(t Toxic) int { return slices.Index([]StreamDirection{"", Upstream, Downstream}, t.Stream) }
	var n []Toxic
	for _, t := range toxics {
		n = append(n, t.Normalize())
	}
	slices.SortStableFunc(n, func(a, b Toxic) int { return side(a) - side(b) })
	return n
}

// Validate returns everything that is wrong with t, each as a *qdisc.FieldError:
// an unknown kind, a field that the kind does not use, a value out of range, or
// one between two steps of the proxy's resolution, with the nearest allowed ones.
func (t Toxic) Validate() error {
	used, known := uses[t.Kind]
	if !known {
		return &qdisc.FieldError{Field: "kind", Value: string(t.Kind),
			Want: "latency, timeout, reset_peer, limit_data, bandwidth, slicer, slow_close or down"}
	}
	c := check{kind: t.Kind, used: used}
	c.stream(t.Stream)
	c.toxicity(t.Toxicity)
	c.duration("latency", t.Latency, toxicStep, toxicStep)
	c.duration("jitter", t.Jitter, 0, toxicStep)
	if slices.Contains(used, "jitter") && t.Jitter > t.Latency {
		c.refuse("jitter", qdisc.FormatDuration(t.Jitter), fmt.Sprintf("at most the latency, %s", qdisc.FormatDuration(t.Latency)))
	}
	c.duration("timeout", t.Timeout, 0, toxicStep)
	c.bytes("bytes", t.Bytes, 1, qdisc.MaxBytes)
	c.rate("rate", t.Rate)
	c.bytes("average_size", t.AverageSize, 1, maxSliceSize)
	// The proxy halves a chunk until it is at most average + variation long. With a
	// variation of the average or more, half a chunk may be no shorter than the
	// whole, and the proxy would not end.
	c.bytes("size_variation", t.SizeVariation, 0, max(t.AverageSize, 1)-1)
	if t.Kind == SlowClose {
		c.duration("delay", t.Delay, toxicStep, toxicStep)
	} else {
		c.duration("delay", t.Delay, 0, toxicPause)
	}
	if t.Seed != 0 && !t.Draws() {
		c.refuse("seed", strconv.FormatUint(t.Seed, 10), "nothing without a toxicity below 100%: there is nothing to draw")
	}
	return errors.Join(c.errs...)
}

// check collects what is wrong with one toxic.
type check struct {
	kind ToxicKind
	used []string
	errs []error
}

func (c *check) refuse(field, value, want string) {
	c.errs = append(c.errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
}

// foreign reports whether field is not one of the kind's, and refuses it when it
// is set all the same.
func (c *check) foreign(field string, set bool, value string) bool {
	if slices.Contains(c.used, field) {
		return false
	}
	if set {
		c.refuse(field, value, fmt.Sprintf("nothing: a %s toxic has no %s", c.kind, field))
	}
	return true
}

func (c *check) stream(s StreamDirection) {
	switch {
	case c.kind == Down && s == Upstream:
		c.refuse("stream", string(s), "nothing: down refuses whole connections")
	case s != "" && s != Upstream && s != Downstream:
		c.refuse("stream", string(s), "upstream (client to server) or downstream (server to client)")
	}
}

func (c *check) toxicity(p qdisc.Percent) {
	parts := float64(p) * toxicityParts
	switch {
	case !(p >= 0 && p <= 100): // NaN too
		c.refuse("toxicity", p.String(), "a percentage from 0.0001% to 100%, such as 30%")
	case c.kind == Down && p != 0 && p != 100:
		c.refuse("toxicity", p.String(), "100% or nothing: down refuses every connection")
	case math.Abs(parts-math.Round(parts)) > 1e-6: // what the binary form adds is less
		below := math.Floor(parts)
		c.refuse("toxicity", p.String(), "a multiple of 0.0001%, such as "+
			nearest(qdisc.Percent(below/toxicityParts), qdisc.Percent((below+1)/toxicityParts), below > 0))
	}
}

func (c *check) duration(field string, d, least, step time.Duration) {
	text := qdisc.FormatDuration(d)
	switch {
	case c.foreign(field, d != 0, text):
	case d < least || d > maxToxicTime:
		c.refuse(field, text, fmt.Sprintf("a time from %v to %s, such as 300ms", least, qdisc.FormatDuration(maxToxicTime)))
	case d%step != 0:
		below := d - d%step
		c.refuse(field, text, fmt.Sprintf("a multiple of %s, such as ", qdisc.FormatDuration(step))+
			nearestText(qdisc.FormatDuration(below), qdisc.FormatDuration(below+step), below >= least))
	}
}

func (c *check) bytes(field string, b, least, most qdisc.Bytes) {
	switch {
	case c.foreign(field, b != 0, b.String()):
	case b < least || b > most:
		c.refuse(field, b.String(), fmt.Sprintf("an amount from %v to %v", least, most))
	}
}

func (c *check) rate(field string, r qdisc.Rate) {
	switch {
	case c.foreign(field, r != 0, r.String()):
	case r < toxicRate || r > maxToxicRate:
		c.refuse(field, r.String(), fmt.Sprintf("a rate from %v (1 KB/s) to %v", toxicRate, maxToxicRate))
	case r%toxicRate != 0:
		below := r - r%toxicRate
		c.refuse(field, r.String(), fmt.Sprintf("a multiple of %v (1 KB/s), such as ", toxicRate)+
			nearest(below, below+toxicRate, below >= toxicRate))
	}
}

// nearest is the end of a sentence that names the allowed values on both sides of
// a refused one; the lower only when it is allowed itself.
func nearest(below, above fmt.Stringer, lower bool) string {
	return nearestText(below.String(), above.String(), lower)
}

func nearestText(below, above string, lower bool) string {
	if lower {
		return below + " or " + above
	}
	return above
}
