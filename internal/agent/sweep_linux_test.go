package agent

import (
	"testing"

	"netemd/internal/testenv"
)

// A name of which somebody is just making or deleting the namespace keeps no sweep from its
// end, nor does one that is gone: there is nothing behind them.
func TestSweepBesideHalfANamespace(t *testing.T) {
	half := testenv.HalfNamespace(t)
	for _, name := range []string{half, half + "-gone"} {
		if removed, err := sweepNamespace(t.Context(), name, t.TempDir()); err != nil || len(removed) > 0 {
			t.Errorf("%s: %q, %v", name, removed, err)
		}
	}
}
