package verify

import "netemd/internal/fidelity"

// The plain types of a verification, which a client shares.
type (
	Options     = fidelity.Options
	Verdict     = fidelity.Verdict
	Result      = fidelity.Result
	PlaceResult = fidelity.PlaceResult
	Check       = fidelity.Check
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
