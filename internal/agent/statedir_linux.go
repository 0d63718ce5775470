package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

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
	if holder, err := waitLock(f); err != nil {
		_ = f.Close()
		if ending(holder) {
			return nil, fmt.Errorf("state folder %s: its agent (pid %d) was killed and has not ended after %v: %w", dir, holder, endingTime, err)
		}
		return nil, fmt.Errorf("state folder %s is in use by another agent (pid %d): %w", dir, holder, err)
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

// How long the lock is waited for: a process that was killed holds it until the kernel has
// taken all of it apart, which on a busy machine comes seconds after the kill.
const (
	endingTime = 10 * time.Second
	lockPause  = 10 * time.Millisecond
)

// waitLock takes the lock, as soon as a holder that is ending has ended. The error is
// EWOULDBLOCK while somebody holds it who is not, and holder his number.
func waitLock(f *os.File) (holder int, err error) {
	for end := time.Now().Add(endingTime); ; time.Sleep(lockPause) {
		text, _ := os.ReadFile(f.Name()) // before: who has it later writes his own
		holder, _ = strconv.Atoi(string(text))
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) || !ending(holder) || time.Now().After(end) {
			return holder, err
		}
	}
}

// ending reports whether a process has ended, or is about to: SIGKILL waits for it, or the
// kernel is taking it apart (PF_EXITING of linux/sched.h in field 9 of proc_pid_stat(5)).
func ending(pid int) bool {
	if pid <= 0 {
		return true // it has just locked the file, and has not written yet who it is
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	const state, flags, exiting = 0, 6, 0x4 // behind the command, which may have spaces in it
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= flags {
		return false
	}
	set, _ := strconv.ParseUint(fields[flags], 10, 64)
	return fields[state] == "Z" || fields[state] == "X" || set&exiting != 0 || killed(pid)
}

// killed reports whether SIGKILL is pending for a process (proc_pid_status(5)).
func killed(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(text)) {
		for _, key := range []string{"SigPnd:", "ShdPnd:"} {
			if hex, ok := strings.CutPrefix(line, key); ok {
				set, _ := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
				if set&(1<<(unix.SIGKILL-1)) != 0 {
					return true
				}
			}
		}
	}
	return false
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
