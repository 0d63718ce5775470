package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"netemd/internal/journal"
	"netemd/namespaces"
)

// lent begins the names that namespaces have for the time of a sweep; the pid and the cookie
// follow.
const lent = "netemd-sweep-"

// takeBack removes the names that were lent by processes that are gone, as after a kill in
// the middle of a sweep.
func takeBack() error {
	entries, err := namespaces.List()
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name, lent)
		by, _, _ := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(by)
		if !ok || err != nil || pid <= 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		path := filepath.Join(namespaces.Dir, e.Name)
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: not mounted yet
			errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

// nameAgain gives a name to each namespace that the journal names places in and that has
// lost its own, as after 'ip netns delete' while a process is in it: who sweeps goes by
// names. The names end with done; in a text, before puts those that were lost in their place.
// What no process is in any more is gone, and its devices with it. One that is known by a path
// and still stands needs no other name: its path is among the names.
func nameAgain(open []journal.Entry) (names []string, before *strings.Replacer, done func() error) {
	var paths, lost []string
	done = func() error {
		var errs []error
		for _, p := range paths {
			errs = append(errs, unix.Unmount(p, unix.MNT_DETACH), os.Remove(p))
		}
		return errors.Join(errs...)
	}
	seen := map[uint64]bool{}
	for _, e := range open {
		for _, p := range e.Places {
			if !e.SameBoot || p.Cookie == 0 || seen[p.Cookie] {
				continue
			}
			seen[p.Cookie] = true
			if cookieOf(p.Namespace) == p.Cookie {
				if strings.HasPrefix(p.Namespace, "/") {
					names = append(names, p.Namespace)
				}
				continue
			}
			name := fmt.Sprintf("%s%d-%d", lent, os.Getpid(), p.Cookie)
			if lendName(p, name) {
				paths, names = append(paths, filepath.Join(namespaces.Dir, name)), append(names, name)
				lost = append(lost, name, p.Namespace)
			}
		}
	}
	return names, strings.NewReplacer(lost...), done
}

// cookieOf is the cookie of a namespace by its name, the agent's own by none; 0 when there
// is none.
func cookieOf(name string) uint64 {
	ns, err := namespaces.Open(name)
	if err != nil {
		return 0
	}
	defer func() { _ = ns.Close() }()
	cookie, err := ns.Cookie()
	if err != nil {
		return 0
	}
	return cookie
}

// lendName looks for a process in the namespace of a place: by the inode, which is cheap,
// and then by the cookie, which no other namespace ever has; and binds it to the name.
func lendName(p journal.Place, name string) bool {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return false
	}
	var tried []uint64
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		from := filepath.Join("/proc", e.Name(), "ns/net")
		var st unix.Stat_t
		if unix.Stat(from, &st) != nil || slices.Contains(tried, st.Ino) || p.Inode != 0 && st.Ino != p.Inode {
			continue
		}
		tried = append(tried, st.Ino)
		path := filepath.Join(namespaces.Dir, name)
		if bind(from, path) != nil {
			continue
		}
		if cookieOf(name) == p.Cookie {
			return true
		}
		_ = errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path))
	}
	return false
}

func bind(from, path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o444)
	if err != nil {
		return err
	}
	_ = f.Close()
	if err := unix.Mount(from, path, "none", unix.MS_BIND, ""); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}
