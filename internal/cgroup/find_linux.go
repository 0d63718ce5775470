package cgroup

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"netemd/qdisc"
)

// Root is the folder at which the hierarchy of version 2 is mounted, /sys/fs/cgroup on most
// hosts and /sys/fs/cgroup/unified where version 1 is there, too. The error is
// errors.ErrUnsupported where there is none, or only a part of it, as in a container.
func Root() (string, error) {
	const mounts = "/proc/self/mountinfo" // proc_pid_mountinfo(5)
	f, err := os.Open(mounts)
	if err != nil {
		return "", fmt.Errorf("find the cgroup hierarchy: %w", err)
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		before, behind, _ := strings.Cut(lines.Text(), " - ")
		fields := strings.Fields(before)
		if !strings.HasPrefix(behind, "cgroup2 ") || len(fields) < 5 || fields[3] != "/" {
			continue
		}
		root := unescape(fields[4])
		// All but the root have a type; in a cgroup namespace another one is shown as the root.
		if _, err := os.Lstat(filepath.Join(root, "cgroup.type")); err == nil {
			return "", fmt.Errorf("find the cgroup hierarchy: %s is a part of it only, since this process is in a cgroup namespace: %w", root, errors.ErrUnsupported)
		}
		return root, nil
	}
	return "", fmt.Errorf("find the cgroup hierarchy: cgroup2 is not mounted: %w", errors.ErrUnsupported)
}

// unescape reads white space in a mount's path, which stands there in octal.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// Find is the group that a text names: one at a path below the root, which begins with '/',
// or that of a unit of systemd. The error is a *qdisc.FieldError that lists what there is for
// one that does not exist or is ambiguous, and matches fs.ErrNotExist for the first.
func Find(text string) (Group, error) {
	if !strings.HasPrefix(text, "/") {
		return findUnit(text)
	}
	return findPath(text)
}

func findPath(path string) (Group, error) {
	root, err := Root()
	if err != nil {
		return Group{}, err
	}
	path = filepath.Clean(path)
	id, err := idOf(filepath.Join(root, path))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return Group{}, missing(root, path)
	case err != nil:
		return Group{}, fmt.Errorf("find cgroup %s: %w", path, err)
	case path == "/":
		return Group{}, &qdisc.FieldError{Field: "cgroup", Value: path, Want: "a group below the root, which has all processes"}
	}
	return Group{Path: path, ID: id, Level: strings.Count(path, "/")}, nil
}

// idOf asks for the number of a group, by which file handles name it (kernfs_encode_fh of
// fs/kernfs/mount.c).
func idOf(dir string) (uint64, error) {
	st, err := os.Lstat(dir)
	if err != nil {
		return 0, err
	}
	if !st.IsDir() {
		return 0, unix.ENOTDIR
	}
	h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, dir, 0)
	if err != nil {
		return 0, err
	}
	if h.Size() < 8 {
		return 0, fmt.Errorf("a file handle of %d bytes: %w", h.Size(), errors.ErrUnsupported)
	}
	return binary.NativeEndian.Uint64(h.Bytes()), nil
}

// missing says what there is instead: in the lowest folder of the path that exists.
func missing(root, path string) error {
	dir := filepath.Dir(path)
	for dir != "/" {
		if _, err := os.Stat(filepath.Join(root, dir)); err == nil {
			break
		}
		dir = filepath.Dir(dir)
	}
	var names []string
	entries, _ := os.ReadDir(filepath.Join(root, dir))
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	want := "a cgroup that exists; there is none below " + dir
	if len(names) > 0 {
		want = "a cgroup that exists: " + qdisc.Few(names)
	}
	return gone{&qdisc.FieldError{Field: "cgroup", Value: path, Want: want}}
}

// gone is a *qdisc.FieldError that matches fs.ErrNotExist, too.
type gone struct{ error }

func (g gone) Unwrap() []error { return []error{g.error, fs.ErrNotExist} }

// Standing is nil while c is there. The error is fs.ErrNotExist when it is gone, also when
// another one has its path by now.
func Standing(c Group) error {
	root, err := Root()
	if err != nil {
		return err
	}
	switch id, err := idOf(filepath.Join(root, c.Path)); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("cgroup %s was removed: %w", c.Path, fs.ErrNotExist)
	case err != nil:
		return fmt.Errorf("look at cgroup %s: %w", c.Path, err)
	case id != c.ID:
		return fmt.Errorf("cgroup %s was removed, and made anew: %w", c.Path, fs.ErrNotExist)
	}
	return nil
}

// maxGroups bounds how many groups are looked through.
const maxGroups = 100_000

// errEnough ends a walk.
var errEnough = errors.New("enough")

// Contains reports whether the group with that id is c or stands below it.
func Contains(c Group, id uint64) (bool, error) {
	if c.ID == id {
		return true, nil
	}
	root, err := Root()
	if err != nil {
		return false, err
	}
	found := false
	err = walk(filepath.Join(root, c.Path), func(dir string) error {
		if got, err := idOf(dir); err == nil && got == id {
			found = true
			return errEnough
		}
		return nil
	})
	return found, err
}

// walk calls visit with every group below dir, from the top. What goes meanwhile is passed over.
func walk(dir string, visit func(dir string) error) error {
	n := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && e == nil, errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case !e.IsDir():
			return nil
		}
		if n++; n > maxGroups {
			return fmt.Errorf("there are more than %d cgroups below %s", maxGroups, dir)
		}
		return visit(path)
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}
