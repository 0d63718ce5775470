// Package verify sends numbered packets through a fault and compares what was asked
// for with what arrives.
package verify

// Verdict is what a check, or all of them together, came to.
type Verdict string

// The verdicts. Inconclusive is neither: too few packets, or nothing that could be
// measured.
const (
	Pass         Verdict = "pass"
	Fail         Verdict = "fail"
	Inconclusive Verdict = "inconclusive"
)

// Defaults of Options.
const (
	DefaultPackets = 10_000
	DefaultRate    = 2_000
)

// Options say how much is sent.
type Options struct {
	// Packets for each place; 0 means DefaultPackets. 100..1,000,000.
	Packets int
	// Rate in packets per second; 0 means DefaultRate. 1..20,000.
	Rate int
}

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
	// Asked is the impairment in the field's words.
	Asked string `json:"asked"`
	// Sent, Received (each number once) and RatePacketsPerSecond are what was done.
	Sent                 int     `json:"sent"`
	Received             int     `json:"received"`
	RatePacketsPerSecond float64 `json:"rate_packets_per_second"`
	// Overflow are packets that a full queue dropped, nil when that cannot be told.
	Overflow *uint64 `json:"overflow_packets"`
	Checks   []Check `json:"checks"`
}

// Check compares one number.
type Check struct {
	// Name is what was measured, with its unit: "loss_percent", "mean_burst_packets",
	// "delay_p50_ms", "reorder_percent", "duplicate_percent", "corrupt_percent",
	// "rate_bit_per_second".
	Name string `json:"name"`
	// Asked is the expected number; nil when there is none.
	Asked *float64 `json:"asked"`
	// Measured and its interval at ConfidencePercent; nil when nothing was measured.
	Measured          *float64 `json:"measured"`
	Low               *float64 `json:"low"`
	High              *float64 `json:"high"`
	ConfidencePercent float64  `json:"confidence_percent"`
	Verdict           Verdict  `json:"verdict"`
	// Note says what the number alone does not: which bound was used, what limits it.
	Note string `json:"note,omitempty"`
}
