package cli

import (
	"testing"

	"netemd/internal/fault"
)

// Each way of not arriving has words of its own.
func TestCountersText(t *testing.T) {
	got := countersText(fault.Counters{Seen: 100, Lost: 5, Overflow: 1, Late: 35, Refused: 40, Opened: 2})
	want := "100 seen, 5 lost, 1 lost to a full queue, 35 thrown away late, the engine having stood still, 40 refused by the device, " +
		"2 passed unimpaired, the engine being late"
	if got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
