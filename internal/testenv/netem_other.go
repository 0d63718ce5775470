//go:build !linux

package testenv

import "testing"

// Netem skips the test: only Linux has sch_netem.
func Netem(t testing.TB) {
	t.Helper()
	t.Skip("needs Linux")
}

// Namespace skips the test: only Linux has network namespaces.
func Namespace(t testing.TB) int {
	t.Helper()
	t.Skip("needs Linux")
	return 0
}
