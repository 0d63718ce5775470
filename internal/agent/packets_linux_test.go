package agent

import (
	"slices"
	"testing"

	"netemd/internal/content"
)

func TestParts(t *testing.T) {
	var parts, skipped []int
	log := content.Log{Chosen: 3000, Skipped: 7, Records: make([]content.Record, 2*packetsAPart+1)}
	if err := sendParts(log, func(l content.Log) error {
		if l.Chosen != 3000 {
			t.Errorf("a part without the totals: %d", l.Chosen)
		}
		parts, skipped = append(parts, len(l.Records)), append(skipped, int(l.Skipped))
		return nil
	}); err != nil || !slices.Equal(parts, []int{packetsAPart, packetsAPart, 1}) || !slices.Equal(skipped, []int{7, 0, 0}) {
		t.Errorf("%v, skipped %v, %v", parts, skipped, err)
	}
}
