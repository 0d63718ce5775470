package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// An agent that was killed a moment ago may still have the lock: it is waited for, and one that
// lives is not.
func TestLockOfAKilledAgent(t *testing.T) {
	testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "s")
	held, err := lockStateDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := lockStateDir(dir); !errors.Is(err, unix.EWOULDBLOCK) || !strings.Contains(err.Error(), fmt.Sprintf("in use by another agent (pid %d)", os.Getpid())) {
		t.Errorf("of one that lives: %v", err)
	}
	if took := time.Since(begin); took > endingTime/2 {
		t.Errorf("it took %v to say that", took)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(held.Truncate(0), os.WriteFile(held.Name(), fmt.Append(nil, gone.Process.Pid), 0o600)); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Second, func() { _ = held.Close() })
	removed, err := Cleanup(t.Context(), Config{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Errorf("cleanup after a kill: %q, %v", removed, err)
	}
}
