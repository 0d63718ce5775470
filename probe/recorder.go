package probe

import (
	"maps"
	"slices"
	"time"
)

// Recorder takes samples as they become final and makes a Summary of them at any time.
// Its memory does not grow with their number: it is some MB at most. Make it with
// NewRecorder; it is not safe for concurrent use.
type Recorder struct {
	target, layer string
	threshold     time.Duration

	count, ok, warmup, slow int
	attempts, rejected      int
	degraded, replays       int
	errors                  map[Class]int
	failed                  map[Class]*distribution // their service times
	texts                   map[Class]string        // the first error of each
	causes, retransmissions map[Cause]int
	latency, service, lag   distribution
	there, back             distribution
	phases                  map[string]*distribution
	turns                   map[int]int
	policy                  map[string]map[string]int
	bytes, first, last      int64
	rate                    distribution // bytes per second, of single calls
	drops                   DropSummary
}

// NewRecorder returns an empty one. Target and layer are what the summary says; the
// threshold is the one that calls were given causes by.
func NewRecorder(target, layer string, threshold time.Duration) *Recorder {
	return &Recorder{
		target: target, layer: layer, threshold: threshold,
		errors: map[Class]int{}, failed: map[Class]*distribution{}, texts: map[Class]string{}, causes: map[Cause]int{}, retransmissions: map[Cause]int{},
		phases: map[string]*distribution{}, turns: map[int]int{}, policy: map[string]map[string]int{},
		drops: newDropSummary(),
	}
}

// Add takes one sample.
func (r *Recorder) Add(s Sample) {
	if s.Warmup {
		r.warmup++
		return
	}
	r.lasted(s.StartNS, s.EndNS)
	r.count++
	if s.DueNS != 0 {
		r.lag.add(s.StartNS - s.DueNS)
	}
	switch {
	case s.Class != OK:
		r.errors[s.Class]++
		values(r.failed, s.Class).add(int64(s.Duration()))
		r.says(s.Class, s.Error)
	case s.Degraded != "": // it has an answer, and how long that took is no measure of the peer
		r.ok++
		r.degraded++
	default:
		r.succeeded(s)
	}
	if s.unasked() {
		r.rejected++
	} else {
		r.attempts += max(1, len(s.Attempts))
	}
	if s.Cause != "" {
		r.slow++
		r.causes[s.Cause]++
	}
	r.addDrops(s)
	r.again(s)
	for _, a := range s.Attempts {
		r.again(a)
	}
	r.happened(s.Policy)
	for _, a := range s.Attempts {
		r.happened(a.Policy)
	}
}

// lasted has the run's calls go from one time to another at least. It comes before they are
// counted.
func (r *Recorder) lasted(first, last int64) {
	if r.count == 0 {
		r.first, r.last = first, last
	}
	r.first, r.last = min(r.first, first), max(r.last, last)
}

// happened counts what policies did in a call or, below them, its transport in an attempt. A
// replay is an attempt that nobody asked for.
func (r *Recorder) happened(events []PolicyEvent) {
	for _, e := range events {
		if r.policy[e.Policy] == nil {
			r.policy[e.Policy] = map[string]int{}
		}
		r.policy[e.Policy][e.Event]++
		if e.Policy == PolicyTransport && e.Event == EventReplayed {
			r.attempts++
		}
	}
}

// again counts a sample's own retransmissions.
func (r *Recorder) again(s Sample) {
	for _, e := range s.Events {
		if e.TimeNS <= s.EndNS && !e.Shared { // later ones belong to the goodbye
			r.retransmissions[e.Cause]++
		}
	}
}

// succeeded takes what is told of successful calls only.
func (r *Recorder) succeeded(s Sample) {
	r.ok++
	if s.Replay {
		r.replays++
	}
	r.latency.add(int64(s.Latency()))
	r.service.add(int64(s.Duration()))
	for _, p := range s.Phases {
		values(r.phases, p.Name).add(p.NS)
	}
	if s.Turns > 0 {
		r.turns[s.Turns]++
	}
	if s.UDP != nil && s.UDP.ThereNS != 0 {
		r.there.add(s.UDP.ThereNS)
		r.back.add(s.UDP.BackNS)
	}
	if s.Bytes == 0 {
		return
	}
	r.bytes += s.Bytes
	if d := s.Duration(); d > 0 {
		r.rate.add(int64(float64(s.Bytes) / d.Seconds()))
	}
}

// Merge adds what another recorder took, which stays as it is.
func (r *Recorder) Merge(from *Recorder) {
	if from.count > 0 {
		r.lasted(from.first, from.last)
	}
	r.bytes += from.bytes
	r.count += from.count
	r.ok += from.ok
	r.warmup += from.warmup
	r.slow += from.slow
	r.attempts += from.attempts
	r.rejected += from.rejected
	r.degraded += from.degraded
	r.replays += from.replays
	sum(r.errors, from.errors)
	sum(r.causes, from.causes)
	sum(r.retransmissions, from.retransmissions)
	sum(r.turns, from.turns)
	r.drops.merge(from.drops)
	for name, events := range from.policy {
		if r.policy[name] == nil {
			r.policy[name] = map[string]int{}
		}
		sum(r.policy[name], events)
	}
	r.latency.merge(&from.latency)
	r.service.merge(&from.service)
	r.lag.merge(&from.lag)
	r.there.merge(&from.there)
	r.back.merge(&from.back)
	r.rate.merge(&from.rate)
	for name, d := range from.phases {
		values(r.phases, name).merge(d)
	}
	for class, d := range from.failed {
		values(r.failed, class).merge(d)
	}
	for class, text := range from.texts {
		r.says(class, text)
	}
}

// says keeps the first error of a class, in words.
func (r *Recorder) says(c Class, text string) {
	if r.texts[c] == "" && text != "" {
		r.texts[c] = text
	}
}

// values is the distribution of a name, which is made where there is none.
func values[K comparable](m map[K]*distribution, of K) *distribution {
	if m[of] == nil {
		m[of] = &distribution{}
	}
	return m[of]
}

func sum[K comparable](to, from map[K]int) {
	for k, n := range from {
		to[k] += n
	}
}

// Count is how many samples were taken beside those of the warm-up, and how many of
// them failed.
func (r *Recorder) Count() (done, failed int) { return r.count, r.count - r.ok }

// Latency is the median and the 99th percentile so far, in ms, nil without a successful
// call. It sorts what it has: ask a few times a second.
func (r *Recorder) Latency() (p50, p99 *float64) {
	q := r.latency.quantiles(50, 99)
	return q[0], q[1]
}

// FailedService is the median and the longest service time of the calls that were attempted
// and failed, of all classes together, in ms; nil without one.
func (r *Recorder) FailedService() (p50, longest *float64) {
	var all distribution
	for class, d := range r.failed {
		if class != Rejected {
			all.merge(d)
		}
	}
	q := all.quantiles(50, 100)
	return q[0], q[1]
}

// Summary is what was taken until now. evidence is what the causes rest on.
func (r *Recorder) Summary(evidence string) Summary {
	s := Summary{
		Target: r.target, Layer: r.layer, Count: r.count, OK: r.ok, Warmup: r.warmup, Attempts: r.attempts, Rejected: r.rejected, Degraded: r.degraded, Replays: r.replays,
		Errors: maps.Clone(r.errors), Causes: maps.Clone(r.causes), Retransmissions: maps.Clone(r.retransmissions),
		ThresholdMS: milliseconds(r.threshold), Evidence: evidence,
		Service:     r.service.summary(),
		Percentiles: PercentilesExact,
		Beyond:      r.latency.beyond,
	}
	l := r.latency.summary()
	s.P50, s.P90, s.P95, s.P99, s.P999, s.Max = l.P50, l.P90, l.P95, l.P99, l.P999, l.Max
	if r.latency.hist != nil {
		s.Percentiles = PercentilesHDR
	}
	if r.slow > 0 {
		share := 100 * float64(r.slow-r.causes[Unknown]) / float64(r.slow)
		s.Explained = &share
	}
	if r.count > 0 {
		x := float64(r.attempts) / float64(r.count)
		s.AttemptsPerCall = &x
	}
	s.Turns = median(r.turns)
	if r.there.n > 0 {
		s.OneWay = &OneWay{There: r.there.summary(), Back: r.back.summary()}
	}
	for name, d := range r.phases {
		if s.Phases == nil {
			s.Phases = map[string]PhaseSummary{}
		}
		s.Phases[name] = d.part()
	}
	for class, d := range r.failed {
		if s.Failed == nil {
			s.Failed = map[Class]PhaseSummary{}
		}
		s.Failed[class] = d.part()
	}
	if len(r.texts) > 0 {
		s.FirstErrors = maps.Clone(r.texts)
	}
	for name, events := range r.policy {
		if s.Policy == nil {
			s.Policy = map[string]map[string]int{}
		}
		s.Policy[name] = maps.Clone(events)
	}
	if r.bytes > 0 {
		s.Goodput = &Goodput{Bytes: r.bytes}
		if d := time.Duration(r.last - r.first); d > 0 {
			s.Goodput.PerSecond = float64(r.bytes) / d.Seconds()
		}
		if q := r.rate.quantiles(50)[0]; q != nil {
			s.Goodput.CallP50 = *q * float64(time.Millisecond)
		}
	}
	return s
}

// Finish enters how the calls were made into a summary of them.
func (r *Recorder) Finish(s *Summary, l Load) {
	q := r.lag.quantiles(50, 99, 100)
	l.LagP50, l.LagP99, l.LagMax = q[0], q[1], q[2]
	s.Load = &l
}

func (d *distribution) summary() Quantiles {
	q := d.quantiles(50, 90, 95, 99, 99.9, 100)
	return Quantiles{P50: q[0], P90: q[1], P95: q[2], P99: q[3], P999: q[4], Max: q[5]}
}

func (d *distribution) part() PhaseSummary {
	q := d.quantiles(50, 99, 100)
	return PhaseSummary{Count: d.n, P50: q[0], P99: q[1], Max: q[2]}
}

// median is the nearest rank among counted values; nil without one.
func median(counts map[int]int) *float64 {
	total := 0
	for _, n := range counts {
		total += n
	}
	seen := 0
	for _, v := range slices.Sorted(maps.Keys(counts)) {
		if seen += counts[v]; 2*seen >= total {
			x := float64(v)
			return &x
		}
	}
	return nil
}
