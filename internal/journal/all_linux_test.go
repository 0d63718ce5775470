package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/testenv"
)

func several(from, n int) (faults []fault.Fault, at [][]target.Place) {
	for i := range n {
		faults, at = append(faults, sample(fmt.Sprintf("bqk%d", from+i))), append(at, places[:1+i%2])
	}
	return faults, at
}

func TestAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	faults, at := several(0, 200)
	must(t, j.IntendAll(t.Context(), faults, at))
	must(t, j.HoldAll(t.Context(), faults[:100]))
	must(t, j.HoldAll(t.Context(), nil))
	must(t, j.End(t.Context(), "bqk0", fault.Cleared))
	must(t, j.Close())
	_, last := open(t, dir)
	if len(last.Open) != 199 || last.Torn+last.Damaged > 0 {
		t.Fatalf("%d open, %d torn, %d damaged", len(last.Open), last.Torn, last.Damaged)
	}
	for i, e := range last.Open {
		i++ // the first has ended
		if e.Fault.ID != faults[i].ID || e.Held != (i < 100) || len(e.Places) != len(at[i]) {
			t.Errorf("%d: %s, held %t, %d places", i, e.Fault.ID, e.Held, len(e.Places))
		}
	}
}

// Where not all find room, none is there, and what comes later is.
func TestAllOrNone(t *testing.T) {
	testenv.Root(t)
	dir := t.TempDir()
	must(t, unix.Mount("nt-journal", dir, "tmpfs", 0, "size=128k"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	j, _ := open(t, dir)
	few, fewAt := several(0, 3)
	must(t, j.IntendAll(t.Context(), few, fewAt))
	many, manyAt := several(10, 500)
	if err := j.IntendAll(t.Context(), many, manyAt); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("500 in 128 KiB: %v", err)
	}
	must(t, j.Intend(t.Context(), sample("later"), places))
	must(t, j.Close())
	text, err := os.ReadFile(filepath.Join(dir, Name))
	must(t, err)
	_, last := open(t, dir)
	if len(last.Open) != 4 || last.Open[3].Fault.ID != "later" || last.Torn+last.Damaged > 0 {
		t.Errorf("%d open, %d torn, %d damaged in %d bytes", len(last.Open), last.Torn, last.Damaged, len(text))
	}
}
