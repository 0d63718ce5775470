// Package feature says what this kernel can do, by trying it in a scratch
// namespace and never by guessing from a module list or a version.
package feature

import "netemd/internal/fault"

// State is the answer of a try.
type State string

// The answers. Inconclusive means that the try itself could not be made, for
// example without root.
const (
	Yes          State = "yes"
	No           State = "no"
	Inconclusive State = "inconclusive"
)

// Feature is one thing that was tried.
type Feature struct {
	// Name is short and stable: "sch_netem", "tcx", "tun", "tp_btf".
	Name  string
	State State
	// Detail is the kernel's own word; Hint is what to do where State is not Yes.
	Detail, Hint string
}

// Report is everything that was tried, and the engine that auto takes.
type Report struct {
	// Kernel is the running kernel's release.
	Kernel   string
	Features []Feature
	// Auto is the engine that a fault gets without --engine, and AutoReason why;
	// empty when this kernel can carry no packet fault.
	Auto       fault.Engine
	AutoReason string
}
