// Package suite reads what a run of somebody's tests said: which passed, failed, were skipped.
// It runs nothing.
package suite

import (
	"cmp"
	"slices"
)

// State is what became of a test.
type State string

// The states. Unfinished is a test that began and had no end, as when its process died.
const (
	Passed     State = "passed"
	Failed     State = "failed"
	Skipped    State = "skipped"
	Unfinished State = "unfinished"
)

// Bad reports that the test did not do what it is for.
func (s State) Bad() bool { return s == Failed || s == Unfinished }

// Test is one test of one run.
type Test struct {
	// Group is the package, class or suite that it is in; empty where nothing was said.
	Group string `json:"group,omitempty"`
	// Name is the test's; that of the group where all of it failed, such as by not compiling.
	Name  string `json:"name"`
	State State  `json:"state"`
}

// sorted are tests by group and name.
func sorted(all []Test) []Test {
	slices.SortFunc(all, func(a, b Test) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name)) })
	return all
}
