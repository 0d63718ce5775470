package kpi

// Metric is a number that can be asked for.
type Metric struct {
	Name string
	// Rate says that it is a share of a number of cases, which chance moves.
	Rate bool
	// Several says that it is many values, for the functions of such; its number is their median.
	Several bool
	// Kinds is what the word in brackets is: empty for a metric without.
	Kinds string
	// Means says what it is and of which population, for people.
	Means string
}

// Metrics are those that a KPI may ask for.
var Metrics = []Metric{
	{Name: "calls", Means: "logical calls that ended, those that were refused by the client's own policy too"},
	{Name: "ok", Means: "logical calls that succeeded"},
	{Name: "success", Rate: true, Means: "ok of calls"},
	{Name: "errors", Kinds: "class", Means: "logical calls that failed with that class: timeout, reset, refused, eof, ..."},
	{Name: "failed", Means: "logical calls that failed, of any class"},
	{Name: "rejected", Means: "logical calls for which the policy made no attempt"},
	{Name: "degraded", Means: "logical calls that a fallback answered; they are in ok"},
	{Name: "replays", Means: "logical calls that were answered as an earlier request with the same idempotency key; they are in ok"},
	{Name: "marked", Means: "logical calls whose answer the peer marked as degraded (X-Degraded of HTTP); they are in ok"},
	{Name: "attempts", Means: "attempts that reached for the network"},
	{Name: "retries", Means: "attempts beside the first one of their call"},
	{Name: "attempts_peak", Kinds: "width", Means: "the most attempts that began within any time of that width, such as 100ms"},
	{Name: "retries_peak", Kinds: "width", Means: "the most retries that began within any time of that width"},
	{Name: "retries_mean", Kinds: "width", Means: "retries per time of that width, from the first to the last one"},
	{Name: "dispersion", Kinds: "width", Means: "index of dispersion (variance / mean) of the retries per bin of that width, from the phase's beginning to the last one"},
	{Name: "retry_delay", Kinds: "retry", Several: true, Means: "pauses in ms before the first, second, ... retries, from an attempt's end to the next one's beginning; as a number, their median"},
	{Name: "retries_outside", Means: "retries that began in no fault, nor in one timeout and the longest pause after one"},
	{Name: "p50_ms", Means: "median latency of the calls that the peer answered well, from when each was due"},
	{Name: "p90_ms", Means: "90th percentile of the same"},
	{Name: "p95_ms", Means: "95th percentile of the same"},
	{Name: "p99_ms", Means: "99th percentile of the same"},
	{Name: "max_ms", Means: "the largest of the same"},
	{Name: "failed_p50_ms", Means: "median service time of failed calls that were attempted"},
	{Name: "failed_max_ms", Means: "the largest of the same"},
	{Name: "rejected_max_ms", Means: "the longest that a call took for which the policy made no attempt"},
	{Name: "phase_p50_ms", Kinds: "part", Means: "median of a part of the call: connect, auth, query, ..."},
	{Name: "turns", Means: "median of how often a good call waited for its peer"},
	{Name: "slow", Means: "calls above the threshold of slow ones"},
	{Name: "explained", Rate: true, Means: "slow calls with a cause, of slow"},
	{Name: "causes", Kinds: "cause", Means: "slow calls with that cause"},
	{Name: "events", Kinds: "event", Means: "things that policies did: breaker.opened, retry.scheduled, ..."},
	{Name: "throughput", Means: "ok calls per second of the phase"},
	{Name: "packets", Means: "packets that matched the fault"},
	{Name: "measured", Rate: true, Means: "packets that the fault lost, of those that matched"},
	{Name: "asked", Rate: true, Means: "the share of packets that the fault was asked to lose"},
	{Name: "recovery_ms", Means: "from the fault's end to the first good call that was due after it; where none succeeded, at least the whole phase"},
	{Name: "command", Means: "exit code of the command, the largest of its runs; 124 of one that reached its limit"},
	{Name: "tests_run", Means: "tests that the command ran, each once for each of its runs; those that it skipped are not in it"},
	{Name: "tests_failed", Means: "tests that failed, or began and never ended, each once for each run of the command"},
	{Name: "tests", Kinds: "name", Means: "runs of the command in which the test of that name failed"},
	{Name: "outages", Means: "times that a fault of processes made a service fail"},
	{Name: "outages_at_once", Means: "the most services that were down at one time, each from its end until it answered again"},
	{Name: "server", Kinds: "counter", Means: "what the lab's servers counted"},
}

// OfCommands are those of the runs of a command.
var OfCommands = []string{"command", "tests_run", "tests_failed", "tests"}

// find returns the metric of that name; nil for none.
func find(name string) *Metric {
	for i := range Metrics {
		if Metrics[i].Name == name {
			return &Metrics[i]
		}
	}
	return nil
}
