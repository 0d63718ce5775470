package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"netemd/internal/fault"
	"netemd/internal/testenv"
)

// In a full file system a record is refused, whole; when there is room again the journal
// goes on, and everything that was not refused is in it.
func TestFullFileSystem(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	must(t, unix.Mount("nt-journal", dir, "tmpfs", 0, "size=128k"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	j, _ := open(t, dir)
	taken := map[string]bool{}
	var refused error
	for i := 0; refused == nil && i < 1000; i++ {
		f := sample(fmt.Sprintf("bqk%d", i))
		if refused = j.Intend(t.Context(), f, places); refused == nil {
			taken[f.ID] = true
		}
	}
	if !errors.Is(refused, unix.ENOSPC) || len(taken) < 10 {
		t.Fatalf("%v after %d records", refused, len(taken))
	}
	text, err := os.ReadFile(filepath.Join(dir, Name))
	must(t, err)
	if text[len(text)-1] != '\n' {
		t.Errorf("a part of the refused record was left: %q", text[max(0, len(text)-80):])
	}
	must(t, unix.Mount("nt-journal", dir, "tmpfs", unix.MS_REMOUNT, "size=256k"))
	must(t, j.End(t.Context(), "bqk0", fault.Cleared))
	delete(taken, "bqk0")
	must(t, j.Close())
	_, last := open(t, dir)
	if last.Torn+last.Damaged > 0 || len(last.Open) != len(taken) {
		t.Errorf("%d open, %d torn, %d damaged; %d were taken", len(last.Open), last.Torn, last.Damaged, len(taken))
	}
	for _, e := range last.Open {
		if !taken[e.Fault.ID] {
			t.Errorf("%s was refused, and is in the journal", e.Fault.ID)
		}
	}
}

// Where what is left of a record cannot even be cut off, the next one begins a line of its
// own.
func TestPartThatStays(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	must(t, j.Intend(t.Context(), sample("bqk1"), places))
	_, err := j.file.WriteString("0123 part of a rec")
	must(t, err)
	j.torn = true
	must(t, j.Intend(t.Context(), sample("bqk2"), places))
	must(t, j.Close())
	_, last := open(t, dir)
	if len(last.Open) != 2 || last.Damaged != 1 {
		t.Errorf("%d open, %d damaged", len(last.Open), last.Damaged)
	}
}
