package agent

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"netemd/internal/fault"
	"netemd/internal/journal"
	"netemd/internal/testenv"
)

// A state folder is refused where somebody else could put another one in its place, and
// nothing is made there.
func TestStateDirBelowOthers(t *testing.T) {
	testenv.Root(t)
	base := t.TempDir()
	mode := func(name string, m os.FileMode) string {
		dir := filepath.Join(base, name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, m)); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	everybody, group, sticky, mine := mode("everybody", 0o777), mode("group", 0o775), mode("sticky", 0o777|fs.ModeSticky), mode("mine", 0o755)
	link := filepath.Join(mine, "link")
	inside, below := filepath.Join(everybody, "inside"), filepath.Join(mine, "below")
	if err := errors.Join(os.Symlink(everybody, link), os.Mkdir(inside, 0o755), os.Symlink(inside, below)); err != nil {
		t.Fatal(err)
	}
	for dir, above := range map[string]string{
		everybody + "/s": everybody, everybody + "/new/s": everybody, group + "/s": group, link + "/s": link, below + "/s": everybody,
		sticky + "/s": "", mine + "/new/s": "",
	} {
		lock, err := lockStateDir(dir)
		if above == "" {
			if err != nil {
				t.Errorf("%s: %v", dir, err)
			} else if err := lock.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "others may write in "+above) || !strings.Contains(fault.HintOf(err), "chmod go-w "+above) {
			t.Errorf("%s: %v, %q, want that others may write in %s", dir, err, fault.HintOf(err), above)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was made: %v", dir, err)
		}
	}
}

// A cleanup says that it could not read what an agent left.
func TestCleanupOfADamagedJournal(t *testing.T) {
	testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "s")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, journal.Name), []byte("garbage\nmore of it\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	removed, err := Cleanup(t.Context(), Config{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil || len(removed) == 0 || !strings.HasPrefix(removed[0], "2 damaged records of the journal") {
		t.Errorf("removed %q, %v, want two damaged records", removed, err)
	}
}
