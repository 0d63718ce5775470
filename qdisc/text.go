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
	w.share("loss", n.Loss, n.LossCorrelation)
	n.rest(&w, FormatDuration)
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
// an iproute2 of 6.6 or later.
func (n Netem) TC() string {
	n = n.Normalize()
	w := words{"limit", count(uint64(n.Limit))}
	n.rest(&w, tcTime)
	w.share("loss", n.Loss, n.LossCorrelation)
	if n.Seed != 0 {
		w.add("seed", count(n.Seed))
	}
	return strings.Join(w, " ")
}

// rest adds all but loss, limit and seed.
func (n Netem) rest(w *words, duration func(time.Duration) string) {
	if n.delay() != (Netem{}) {
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
