// Package testenv is for tests that need privileges or a kernel feature. A test
// may skip only where the machine cannot give what it needs; where the run was
// promised it (NETEMD_TEST_ROOT=1, NETEMD_TEST_NETEM=1), its absence is a failure.
package testenv

import (
	"os"
	"testing"
)

// Root skips the test without root, or fails it when NETEMD_TEST_ROOT is set.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() == 0 {
		return
	}
	if os.Getenv("NETEMD_TEST_ROOT") != "" {
		t.Fatal("NETEMD_TEST_ROOT is set, but this is not root")
	}
	t.Skip("needs root")
}
