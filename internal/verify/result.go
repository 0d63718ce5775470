package verify

import (
	"strings"

	"netemd/internal/fidelity"
)

// The plain types of a verification, which a client shares: see package fidelity.
type (
	// Options say how much is sent.
	Options = fidelity.Options
	// Verdict is what a check, or all of them together, came to.
	Verdict = fidelity.Verdict
	// Result is what a verification found.
	Result = fidelity.Result
	// PlaceResult is what was found at one place.
	PlaceResult = fidelity.PlaceResult
	// Check compares one number.
	Check = fidelity.Check
)

// Their constants.
const (
	Pass         = fidelity.Pass
	Fail         = fidelity.Fail
	Inconclusive = fidelity.Inconclusive

	DefaultPackets = fidelity.DefaultPackets
	MinPackets     = fidelity.MinPackets
	MaxPackets     = fidelity.MaxPackets
	DefaultRate    = fidelity.DefaultRate
	MaxRate        = fidelity.MaxRate
)

// conclude makes one verdict of the places'.
func conclude(r *Result) {
	weight := map[Verdict]int{Pass: 0, Inconclusive: 1, Fail: 2}
	var reasons []string
	for _, p := range r.Places {
		if weight[p.Verdict] > weight[r.Verdict] {
			r.Verdict = p.Verdict
		}
	}
	for _, p := range r.Places {
		switch {
		case p.Verdict != r.Verdict:
		case len(r.Places) == 1:
			reasons = append(reasons, p.Reason)
		default:
			reasons = append(reasons, p.Placement+": "+p.Reason)
		}
	}
	r.Reason = strings.Join(reasons, "; ")
	if len(r.Places) == 0 {
		r.Verdict, r.Reason = Inconclusive, "the fault has no place"
	}
}
