package probe

import (
	"cmp"
	"slices"
	"time"
)

// The two kinds of evidence that a Summary can rest on.
const (
	EvidenceTraced   = "tp_btf, both ends"
	EvidenceCounters = "TCP_INFO and namespace counters (TLP unknown)"
)

// How a Summary's percentiles were taken.
const (
	// PercentilesExact: the smallest value that at least p % do not exceed, so always
	// one that was measured.
	PercentilesExact = "calls that the peer answered well; nearest rank"
	// PercentilesHDR: the same from classes of 0.1 %, of more calls than are kept.
	PercentilesHDR = "calls that the peer answered well; HDR histogram, 3 significant figures"
)

// Summary is what a run of calls amounts to. Calls of the warm-up are in none of its
// numbers but Warmup.
type Summary struct {
	// Target and Layer say what was probed: layer direct or proxy; in a comparison
	// none, packet, proxy or proxy+latency.
	Target string `json:"target"`
	Layer  string `json:"layer"`
	// Count are all calls, OK those without an error.
	Count int `json:"count"`
	OK    int `json:"ok"`
	// Errors counts the calls that failed, by class, Rejected too.
	Errors map[Class]int `json:"errors"`
	// Failed are the service times of the calls that failed, by class: no percentile has
	// them, and they say whether errors came within the budget.
	Failed map[Class]PhaseSummary `json:"failed,omitempty"`
	// FirstErrors are the words of the first call that failed, by class.
	FirstErrors map[Class]string `json:"first_errors,omitempty"`
	// Percentiles of the successful calls' latencies, each from when it was due (see
	// Sample.Latency); null without one. The largest is exact in any case.
	P50  *float64 `json:"p50_ms"`
	P90  *float64 `json:"p90_ms"`
	P95  *float64 `json:"p95_ms"`
	P99  *float64 `json:"p99_ms"`
	P999 *float64 `json:"p99_9_ms"`
	Max  *float64 `json:"max_ms"`
	// Service is the same from when each call began (see Sample.Duration). In a closed
	// loop both are the same.
	Service Quantiles `json:"service"`
	// Percentiles says whose they are and how they were taken: PercentilesExact or
	// PercentilesHDR. Beyond counts the values of the latter above 1 h: they are in every
	// percentile and in Max.
	Percentiles string `json:"percentiles"`
	Beyond      int    `json:"beyond_range,omitempty"`
	// Causes counts the calls, failed ones too, above ThresholdMS by their cause.
	Causes map[Cause]int `json:"causes"`
	// ThresholdMS is the service time above which a call is slow.
	ThresholdMS float64 `json:"slow_threshold_ms"`
	// Explained is the share of slow calls whose cause is not unknown; null
	// without a slow call.
	Explained *float64 `json:"explained_percent"`
	// Retransmissions counts the kernel's events during these calls, by cause; those
	// of a connection's closing after its call are not among them.
	Retransmissions map[Cause]int `json:"retransmissions"`
	// Evidence says where the causes come from: "tp_btf, both ends" or
	// "TCP_INFO and namespace counters (TLP unknown)".
	Evidence string `json:"evidence"`
	// Drops is what the fault's own record says; nil where none was kept.
	Drops *DropSummary `json:"drops,omitempty"`
	// Warmup counts the calls that were due in the warm-up.
	Warmup int `json:"warmup"`
	// Attempts counts what reached for the network: one for each call without a policy,
	// as many as it made with one. Rejected are the calls for which a policy made none.
	Attempts        int      `json:"attempts"`
	AttemptsPerCall *float64 `json:"attempts_per_call"`
	Rejected        int      `json:"rejected"`
	// Degraded are the calls among OK that a fallback answered: they are in no percentile,
	// and those for which nothing was asked are among Rejected, too.
	Degraded int `json:"degraded"`
	// Replays are the calls among OK that were answered as an earlier request with the same
	// idempotency key was: nothing was done again for them.
	Replays int `json:"replays,omitempty"`
	// Turns is the median of how often a successful call waited for an answer of its
	// peer; null where nobody counts.
	Turns *float64 `json:"turns_per_call"`
	// Phases are the parts of successful calls, by their names.
	Phases map[string]PhaseSummary `json:"phases,omitempty"`
	// Policy counts the events of policies, by policy and event.
	Policy map[string]map[string]int `json:"policy,omitempty"`
	// Goodput is that of the successful calls, where payload is counted.
	Goodput *Goodput `json:"goodput,omitempty"`
	// UDP is what became of all numbered packets, for the kind udp.
	UDP *Datagrams `json:"udp,omitempty"`
	// OneWay are the delays of the packets that were answered in time; nil where the two
	// ends do not share a clock.
	OneWay *OneWay `json:"one_way,omitempty"`
	// Settings are what else decides the numbers, by name: see Describer.
	Settings map[string]string `json:"settings,omitempty"`
	// Outages are the times in which calls failed, and what their ends took; nil without a
	// failure, and where only samples are known.
	Outages *Outages `json:"outages,omitempty"`
	// Environment is what decided the timers of TCP; nil where only samples are known.
	Environment *Environment `json:"environment,omitempty"`
	// Load is how the calls were made; nil where only samples are known.
	Load *Load `json:"load,omitempty"`
}

// Quantiles are percentiles in ms; null without a value.
type Quantiles struct {
	P50  *float64 `json:"p50_ms"`
	P90  *float64 `json:"p90_ms"`
	P95  *float64 `json:"p95_ms"`
	P99  *float64 `json:"p99_ms"`
	P999 *float64 `json:"p99_9_ms"`
	Max  *float64 `json:"max_ms"`
}

// OneWay are the delays of each direction.
type OneWay struct {
	There Quantiles `json:"there"`
	Back  Quantiles `json:"back"`
}

// PhaseSummary is the time of one part of the calls, of those that had it.
type PhaseSummary struct {
	Count int      `json:"count"`
	P50   *float64 `json:"p50_ms"`
	P99   *float64 `json:"p99_ms"`
	Max   *float64 `json:"max_ms"`
}

// Goodput is the payload that arrived.
type Goodput struct {
	// Bytes is the sum.
	Bytes int64 `json:"bytes"`
	// PerSecond is Bytes over the time from the first call's start to the last one's end, of
	// those that failed, too;
	// with a pace, most of that may have been idle.
	PerSecond float64 `json:"bytes_per_second"`
	// CallP50 is the median of the single calls' rates, each over its service time.
	CallP50 float64 `json:"call_p50_bytes_per_second"`
}

// Load is how the calls of a run were made, the warm-up included.
type Load struct {
	// Loop is "closed" or "open".
	Loop string `json:"loop"`
	// ElapsedMS is from the run's start to its last call's end.
	ElapsedMS float64 `json:"elapsed_ms"`
	// Asked is the schedule's rate until the last call was due; null in a closed loop.
	// Achieved is the rate at which calls were really started until the last one was.
	Asked    *float64 `json:"asked_per_second"`
	Achieved float64  `json:"achieved_per_second"`
	// Started counts the calls that began, CutOff those of them that the run's early end
	// cut off, which are no measurement.
	Started int `json:"started"`
	CutOff  int `json:"cut_off"`
	// NotStarted counts the calls of an open loop that were due before its end and were
	// never made, since MaxInFlight others were under way until then. They have no sample:
	// no percentile has them, and each would have waited at least from when it was due to
	// the end.
	NotStarted int `json:"not_started"`
	// InFlightMax is the most calls that were under way at a time, MaxInFlight the bound
	// of an open loop.
	InFlightMax int `json:"in_flight_max"`
	MaxInFlight int `json:"max_in_flight,omitempty"`
	// LagP50, LagP99 and LagMax say by how much the calls of an open loop began later than
	// they were due: the generator's own fault, or MaxInFlight's. All latencies contain it.
	LagP50 *float64 `json:"lag_p50_ms"`
	LagP99 *float64 `json:"lag_p99_ms"`
	LagMax *float64 `json:"lag_max_ms"`
	// Seed is what everything was drawn with.
	Seed uint64 `json:"seed"`
}

// Result is a run: its summary and every sample of it. Where there were more than the
// asker wanted to keep, there is none.
type Result struct {
	Summary Summary  `json:"summary"`
	Samples []Sample `json:"samples"`
}

// DefaultKeep is how many samples a Result has at most; more are only streamed.
const DefaultKeep = 20_000

// BySeq orders samples by their numbers.
func BySeq(samples []Sample) {
	slices.SortFunc(samples, func(a, b Sample) int { return cmp.Compare(a.Seq, b.Seq) })
}

// Progress is how far a run is.
type Progress struct {
	// Done counts the calls that have ended beside those of the warm-up, Failed those of
	// them that failed; Count is how many there will be, 0 where only time ends the run.
	Done, Failed, Count int
	// Elapsed is since the run's beginning.
	Elapsed time.Duration
	// P50 and P99 are the latencies of the successful calls so far, in ms, up to a second
	// behind; nil without one.
	P50, P99 *float64
}

// Summarize condenses samples that have their causes: a Recorder for those who have all
// samples at hand. The threshold is SlowThreshold; who attributed with another one sets
// ThresholdMS.
func Summarize(target, layer string, samples []Sample, evidence string) Summary {
	r := NewRecorder(target, layer, SlowThreshold)
	for _, s := range samples {
		r.Add(s)
	}
	return r.Summary(evidence)
}
