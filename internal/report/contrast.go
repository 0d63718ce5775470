package report

import "netemd/internal/experiment"

// Across is a number over the repeats; the true median lies from Least to Largest with the
// probability Level.
type Across struct {
	Repeats []float64 `json:"repeats"`
	Median  float64   `json:"median"`
	Least   float64   `json:"least"`
	Largest float64   `json:"largest"`
	Level   float64   `json:"level"`
}

// Contrast is a case's good calls under the fault beside those without it, by the test of Mann
// and Whitney.
type Contrast struct {
	Case          string  `json:"case"`
	Control       int     `json:"control_calls"`
	Fault         int     `json:"fault_calls"`
	ControlMedian float64 `json:"control_median_ms"`
	FaultMedian   float64 `json:"fault_median_ms"`
	// P is how often chance alone makes as much of a difference, Slower the share of pairs in
	// which the call under the fault is the slower one, and Differs whether P is below 0.001.
	P       float64 `json:"p"`
	Slower  float64 `json:"slower"`
	Differs bool    `json:"differs"`
}

// Contrasts are those of an experiment.
func Contrasts(all []experiment.Contrast) (out []Contrast) {
	for _, c := range all {
		out = append(out, Contrast{
			Case: c.Case, Control: c.Control, Fault: c.Fault, ControlMedian: c.ControlMedian, FaultMedian: c.FaultMedian,
			P: c.P, Slower: c.Larger, Differs: c.Differ(),
		})
	}
	return out
}
