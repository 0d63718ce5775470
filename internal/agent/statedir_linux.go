package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"netemd/internal/fault"
)

// lockStateDir makes the folder and holds a lock in it, so that one agent at a
// time uses it. The lock goes with the process.
func lockStateDir(dir string) (*os.File, error) {
	if err := checkAbove(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := checkStateDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid, _ := os.ReadFile(f.Name())
		_ = f.Close()
		return nil, fmt.Errorf("state folder %s is in use by another agent (pid %s): %w", dir, pid, err)
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(mine, there) {
		_ = f.Close()
		return lockStateDir(dir) // its last holder removed it meanwhile
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkStateDir refuses a folder in which others could plant what root then follows.
func checkStateDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("state folder %s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fault.WithHint(fmt.Errorf("state folder %s: must belong to root and be writable by nobody else: %w", dir, os.ErrPermission),
			"name a folder that does not exist yet, below one of root's")
	}
	return nil
}

// checkAbove refuses a state folder below one in which others could put another in its place.
// The sticky bit, as of /tmp, forbids them that; a folder of somebody's home is his, who
// started the agent there. What does not exist yet is made by the agent.
func checkAbove(dir string) error {
	for _, first := range []string{filepath.Dir(dir), resolvedAbove(dir)} { // a link can be put elsewhere, and what it points at be replaced
		for above := first; ; above = filepath.Dir(above) {
			var st unix.Stat_t
			if err := unix.Stat(above, &st); err == nil && st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
				return fault.WithHint(fmt.Errorf("state folder %s: others may write in %s, and put another one in its place: %w", dir, above, os.ErrPermission),
					"name a folder below one in which root alone may write, or: chmod go-w "+above)
			}
			if above == filepath.Dir(above) {
				break
			}
		}
	}
	return nil
}

// resolvedAbove is the folder without symbolic links that dir is in, or is going to be made in.
func resolvedAbove(dir string) string {
	if path, err := filepath.EvalSymlinks(dir); err == nil {
		return filepath.Dir(path)
	}
	for above := filepath.Dir(dir); ; above = filepath.Dir(above) {
		if path, err := filepath.EvalSymlinks(above); err == nil || above == filepath.Dir(above) {
			return path
		}
	}
}

// removeStateDir removes the lock, and the folder when nothing else is in it.
func removeStateDir(cfg Config, lock *os.File) error {
	err := os.Remove(lock.Name())
	_ = os.Remove(filepath.Join(cfg.StateDir, "labs")) // not empty: a lab that could not be taken down
	_ = os.Remove(cfg.StateDir)
	return errors.Join(err, lock.Close())
}
