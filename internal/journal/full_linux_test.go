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

// A fault whose end finds no room is not carried on: neither by the file, once there is room
// again, nor by one that is written anew, nor by what is said of it.
func TestEndInFullFileSystem(t *testing.T) {
	testenv.Root(t)
	for name, next := range map[string]func(*Journal) error{
		"the next record": func(j *Journal) error { return j.Intend(t.Context(), sample("last"), places) },
		"a new file": func(j *Journal) error {
			j.mu.Lock()
			defer j.mu.Unlock()
			return j.compact()
		},
		"the close": func(*Journal) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, unix.Mount("nt-journal", dir, "tmpfs", 0, "size=64k"))
			t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
			j, _ := open(t, dir)
			for _, id := range []string{"bqk1", "bqk2", "bqk3"} {
				must(t, j.Intend(t.Context(), sample(id), places))
			}
			must(t, j.Keep(t.Context(), []fault.Fault{sample("bqk2"), sample("bqk3")}))
			filler, err := os.Create(filepath.Join(dir, "filler"))
			must(t, err)
			defer filler.Close()
			for err == nil {
				_, err = filler.Write(make([]byte, 4096))
			}
			for err = nil; err == nil; { // the rest of the journal's last page
				err = j.End(t.Context(), "none", fault.Cleared)
			}
			for id, s := range map[string]fault.State{"bqk1": fault.Cleared, "bqk2": fault.Expired, "bqk3": fault.Cleared} {
				if err := j.End(t.Context(), id, s); !errors.Is(err, unix.ENOSPC) {
					t.Errorf("the end of %s: %v", id, err)
				}
			}
			must(t, filler.Truncate(0))
			if last := j.state.told(); len(last.Open) != 0 || len(last.Kept) != 1 {
				t.Errorf("before it was written: open %+v, kept %+v", last.Open, last.Kept)
			}
			must(t, next(j))
			must(t, j.Close())
			_, last := open(t, dir)
			for _, e := range last.Open {
				if e.Fault.ID != "last" {
					t.Errorf("%s has ended, and is open", e.Fault.ID)
				}
			}
			if len(last.Kept) != 1 || last.Kept[0].ID != "bqk3" || last.Torn+last.Damaged > 0 {
				t.Errorf("kept %+v, %d torn, %d damaged", last.Kept, last.Torn, last.Damaged)
			}
		})
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
