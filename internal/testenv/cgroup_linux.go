package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroup is a group of cgroup v2 of a test's own, below the root. Its name has the process's
// number in it.
type Cgroup struct {
	// Path is as /proc/PID/cgroup has it, Dir where it is found.
	Path, Dir string
	root      string
}

// NewCgroup makes a group, which ends with the test. A name may be a path, of which all is
// made and removed. It needs root, as Root does, and cgroup v2.
func NewCgroup(t testing.TB, name string) *Cgroup {
	t.Helper()
	Root(t)
	root := ""
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if unix.Statfs(dir, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			root = dir
		}
	}
	if root == "" {
		t.Fatal("no cgroup v2 at /sys/fs/cgroup")
	}
	path := fmt.Sprintf("/nt-%d-%s", os.Getpid(), name)
	g := &Cgroup{Path: path, Dir: filepath.Join(root, path), root: root}
	g.Make(t)
	t.Cleanup(func() { g.Remove(t) })
	return g
}

// Make makes the group, again if it was removed.
func (g *Cgroup) Make(t testing.TB) {
	t.Helper()
	if err := os.MkdirAll(g.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// Remove removes the group and what stands above it. Processes that have just ended are
// waited for.
func (g *Cgroup) Remove(t testing.TB) {
	t.Helper()
	for dir := g.Dir; dir != g.root; dir = filepath.Dir(dir) {
		end := time.Now().Add(10 * time.Second)
		for {
			err := unix.Rmdir(dir)
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			if !errors.Is(err, unix.EBUSY) || dir != g.Dir || time.Now().After(end) {
				if dir == g.Dir {
					t.Errorf("remove cgroup %s: %v", dir, err)
				}
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// Add moves a process into the group.
func (g *Cgroup) Add(t testing.TB, pid int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(g.Dir, "cgroup.procs"), fmt.Append(nil, pid), 0); err != nil {
		t.Fatal(err)
	}
}

// Run runs f with this process in the group, and moves it back: the sockets that f opens
// belong to the group from then on.
func (g *Cgroup) Run(t testing.TB, f func()) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	back := &Cgroup{Dir: g.root}
	for line := range strings.SplitSeq(string(text), "\n") {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			back.Dir = filepath.Join(g.root, path)
		}
	}
	g.Add(t, os.Getpid())
	defer back.Add(t, os.Getpid())
	f()
}
