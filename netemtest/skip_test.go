package netemtest

import (
	"errors"
	"fmt"
	"testing"

	"netemd/internal/fault"
	"netemd/internal/feature"
)

// A skip says what trying the kernel gave.
func TestMissing(t *testing.T) {
	r := feature.Report{Kernel: "6.1", Features: []feature.Feature{
		{Name: "tcx", State: feature.No, Detail: "needs Linux 6.6"}, {Name: "tun", State: feature.Yes}, {Name: "sch_netem", State: feature.Inconclusive, Detail: "no root"},
	}}
	if got, want := missing(r), "tcx: no (needs Linux 6.6); sch_netem: inconclusive (no root)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// ending keeps how a test was ended.
type ending struct {
	testing.TB
	how string
}

func (e *ending) Helper()           {}
func (e *ending) Fatal(args ...any) { e.how = "fatal: " + fmt.Sprint(args...) }
func (e *ending) Skip(args ...any)  { e.how = "skip: " + fmt.Sprint(args...) }

func TestRefuse(t *testing.T) {
	unsupported := fmt.Errorf("drop: no tcx: %w", errors.ErrUnsupported)
	for _, tt := range []struct {
		err           error
		require, want string
	}{
		{unsupported, "", "skip: netemtest: drop: no tcx: unsupported operation"},
		{unsupported, "1", "fatal: netemtest: drop: no tcx: unsupported operation; NETEMTEST_REQUIRE is set, so that this is no reason to skip the test"},
		{fault.WithHint(errors.New("a mistake"), "do better"), "", "fatal: netemtest: a mistake (do better)"},
		{fmt.Errorf("start: %w", errNoAgent), "0", "skip: netemtest: start: " + errNoAgent.Error() + " (" + fault.HintOf(errNoAgent) + ")"},
	} {
		t.Setenv(requireEnv, tt.require)
		e := &ending{TB: t}
		refuse(e, tt.err)
		if e.how != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, e.how, tt.want)
		}
	}
}
