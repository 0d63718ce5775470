package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"netemd/internal/content"
)

// What is no longer kept of the chosen packets is a number in JSON, and a warning for people.
func TestPacketsNoLongerKept(t *testing.T) {
	log := content.Log{Records: make([]content.Record, content.MaxRecords), Chosen: content.MaxRecords + 2500, Missed: 500}
	w := world{agent: &fakeAgent{log: log}}
	if code := w.run(t.Context(), "drop", "rst", "--target", "pg"); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.stderr.String())
	}
	w.stdout.Reset()
	if code := w.run(t.Context(), "packets", "f1", "-o", "json"); code != 0 {
		t.Fatalf("exit code %d: %s", code, w.stderr.String())
	}
	var got struct {
		Data struct {
			Chosen  uint64 `json:"chosen_packets"`
			Missed  uint64 `json:"missed_packets"`
			Skipped uint64 `json:"skipped_packets"`
			Packets []any  `json:"packets"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(w.stdout.String()), &got); err != nil {
		t.Fatal(err)
	}
	d := got.Data
	if d.Skipped != 2000 || d.Chosen != d.Missed+d.Skipped+uint64(len(d.Packets)) {
		t.Errorf("chosen %d, missed %d, skipped %d, %d packets", d.Chosen, d.Missed, d.Skipped, len(d.Packets))
	}
	w.stderr.Reset()
	w.run(t.Context(), "packets", "f1")
	if !strings.Contains(w.stderr.String(), "2000 packets before these are no longer kept") {
		t.Errorf("it warned: %s", w.stderr.String())
	}
}
