// Package fidelity says whether a fault does what was asked for: what a verification
// is told, and what it found. The types are plain, so that a client needs nothing of
// what sends and captures packets.
package fidelity

// Verdict is what a check, or all of them together, came to.
type Verdict string

// The verdicts. Inconclusive is neither: too few packets, or nothing that could be
// measured.
const (
	Pass         Verdict = "pass"
	Fail         Verdict = "fail"
	Inconclusive Verdict = "inconclusive"
)

// Result is what a verification found.
type Result struct {
	Fault   string  `json:"fault"`
	Verdict Verdict `json:"verdict"`
	// Reason says in one line why the verdict is what it is.
	Reason string        `json:"reason"`
	Places []PlaceResult `json:"places"`
}

// PlaceResult is what was found at one place.
type PlaceResult struct {
	// Placement is the place in one phrase.
	Placement string `json:"placement"`
	// Path says in one phrase where the packets were sent and captured, and Packet
	// what they were: "tcp from 10.77.0.1 port 40000 to 10.77.0.2 port 5432, 256 bytes".
	Path   string `json:"path,omitempty"`
	Packet string `json:"packet,omitempty"`
	// Asked is the impairment in the field's words.
	Asked   string  `json:"asked"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`
	// Sent, Received (each number once) and RatePacketsPerSecond are what was done.
	Sent                 int     `json:"sent"`
	Received             int     `json:"received"`
	RatePacketsPerSecond float64 `json:"rate_packets_per_second"`
	// Overflow are packets that a full queue dropped, nil when that cannot be told.
	Overflow *uint64 `json:"overflow_packets"`
	Checks   []Check `json:"checks"`
	// Notes say what limits the measurement.
	Notes []string `json:"notes,omitempty"`
}

// Check compares one number.
type Check struct {
	// Name is what was measured, with its unit: "loss_percent", "mean_burst_packets",
	// "delay_min_ms", "delay_p50_ms", "delay_distance_percent", "jitter_p25_to_p75_ms",
	// "reorder_percent", "duplicate_percent", "corrupt_percent", "ecn_mark_percent",
	// "rate_bit_per_second".
	Name string `json:"name"`
	// Asked is the expected number; nil when there is none.
	Asked *float64 `json:"asked"`
	// Measured and its interval at ConfidencePercent; nil when nothing was measured. A
	// bound alone is nil where there is none.
	Measured          *float64 `json:"measured"`
	Low               *float64 `json:"low"`
	High              *float64 `json:"high"`
	ConfidencePercent float64  `json:"confidence_percent"`
	Verdict           Verdict  `json:"verdict"`
	// Note says what the number alone does not: which bound was used, what limits it.
	Note string `json:"note,omitempty"`
}
