package qdisc

import (
	"strconv"
	"strings"
	"time"
)

// String says n in the field's words: "loss 20% delay 100ms 20ms". What is not
// set is left out; the zero value is "none".
func (n Netem) String() string {
	var w words
	n.lossWords(&w)
	n.mangling(&w, FormatDuration)
	n.pacing(&w, FormatDuration, Bytes.String)
	if n.Limit != 0 {
		w.add("limit", count(uint64(n.Limit)))
	}
	if n.Seed != 0 {
		w.add("seed", count(n.Seed))
	}
	if len(w) == 0 {
		return "none"
	}
	return strings.Join(w, " ")
}

// TC is n as arguments for `tc qdisc replace dev X root netem`, with what
// Normalize fills in: "limit 100000 delay 100ms 20ms 25% loss 20%". A seed needs
// an iproute2 of 6.6 or later; a distribution custom is the file custom.dist in tc's
// folder of them, with the Samples.
func (n Netem) TC() string {
	n = n.Normalize()
	w := words{"limit", count(uint64(n.Limit))}
	n.mangling(&w, tcTime)
	n.lossWords(&w)
	n.pacing(&w, tcTime, func(b Bytes) string { return count(uint64(b)) })
	if n.Seed != 0 {
		w.add("seed", count(n.Seed))
	}
	return strings.Join(w, " ")
}

// mangling adds delay, reorder, duplicate and corrupt.
func (n Netem) mangling(w *words, duration func(time.Duration) string) {
	if n.Delay != 0 || n.Jitter != 0 || n.DelayCorrelation != 0 || n.Distribution != "" {
		w.add("delay", duration(n.Delay))
	}
	if n.Jitter != 0 || n.DelayCorrelation != 0 {
		w.add(duration(n.Jitter))
	}
	if n.DelayCorrelation != 0 {
		w.add(n.DelayCorrelation.String())
	}
	if n.Distribution != "" && n.Distribution != Uniform {
		w.add("distribution", string(n.Distribution))
	}
	w.share("reorder", n.Reorder, n.ReorderCorrelation)
	if n.Gap > 1 {
		w.add("gap", count(uint64(n.Gap)))
	}
	w.share("duplicate", n.Duplicate, n.DuplicateCorrelation)
	w.share("corrupt", n.Corrupt, n.CorruptCorrelation)
}

func (n Netem) lossWords(w *words) {
	w.share("loss", n.Loss, n.LossCorrelation)
	if n.LossState != (LossState{}) {
		w.add("loss", "state", n.LossState.text(" "))
	}
	if n.GilbertElliott != (GilbertElliott{}) {
		w.add("loss", "gemodel", n.GilbertElliott.text(" "))
	}
	if n.ECN {
		w.add("ecn")
	}
}

// pacing adds rate and slot.
func (n Netem) pacing(w *words, duration func(time.Duration) string, size func(Bytes) string) {
	if n.Rate != 0 {
		w.add("rate", n.Rate.String())
		extra := []int64{int64(n.PacketOverhead), int64(n.CellSize), int64(n.CellOverhead)}
		for len(extra) > 0 && extra[len(extra)-1] == 0 {
			extra = extra[:len(extra)-1]
		}
		for _, v := range extra {
			w.add(strconv.FormatInt(v, 10))
		}
	}
	s := n.Slot
	switch {
	case s == Slot{}:
		return
	case s.Distribution != "" || s.Jitter != 0:
		w.add("slot", "distribution", string(s.Distribution), duration(s.Delay), duration(s.Jitter))
	default:
		w.add("slot", duration(s.MinDelay))
		if s.MaxDelay != 0 && s.MaxDelay != s.MinDelay {
			w.add(duration(s.MaxDelay))
		}
	}
	if s.Packets != 0 {
		w.add("packets", count(uint64(s.Packets)))
	}
	if s.Bytes != 0 {
		w.add("bytes", size(s.Bytes))
	}
}

type words []string

func (w *words) add(s ...string) { *w = append(*w, s...) }

func (w *words) share(name string, p, correlation Percent) {
	if p == 0 && correlation == 0 {
		return
	}
	w.add(name, p.String())
	if correlation != 0 {
		w.add(correlation.String())
	}
}

func count(v uint64) string { return strconv.FormatUint(v, 10) }

// tcTime is d as tc reads it: it knows s, ms, us and ns, and no h or m.
func tcTime(d time.Duration) string {
	for _, u := range []struct {
		name string
		size time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}} {
		if d >= u.size && d%u.size == 0 {
			return count(uint64(d/u.size)) + u.name
		}
	}
	if d == 0 {
		return "0ms"
	}
	return count(uint64(d)) + "ns"
}
