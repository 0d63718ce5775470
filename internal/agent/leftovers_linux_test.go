package agent

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"netemd/internal/testenv"
)

// What an earlier agent left and cannot be undone is said, and does not keep an agent
// from starting: without one nothing else would be cleared.
func TestLeftoverThatCannotBeUndone(t *testing.T) {
	testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "s")
	record := filepath.Join(dir, "offload", "bqk1.json")
	if err := os.MkdirAll(filepath.Dir(record), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	a, err := New(t.Context(), Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), record) {
		t.Errorf("the log does not name %s:\n%s", record, log.String())
	}
}
