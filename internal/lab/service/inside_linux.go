package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"netemd/namespaces"
)

// inode is what a namespace is among those that something holds.
type inode struct{ dev, number uint64 }

// StopInside ends every process in the namespaces, those too that appear meanwhile, but not
// this one, and says in which some are left. Everything that they have started ends, too,
// wherever it went. One look at all processes serves all namespaces.
func StopInside(ctx context.Context, names []string) (left map[string]bool, err error) {
	const rounds = 20
	at := map[inode]string{}
	for _, name := range names {
		var st unix.Stat_t
		if unix.Stat(filepath.Join(namespaces.Dir, name), &st) == nil {
			at[inode{st.Dev, st.Ino}] = name
		}
	}
	var errs error
	for range rounds {
		found, err := inside(at)
		if err != nil {
			return left, err
		}
		if len(found) == 0 {
			return nil, nil
		}
		left = map[string]bool{}
		for _, name := range found {
			left[name] = true
		}
		if errs = end(found); context.Cause(ctx) != nil {
			return left, errors.Join(errs, context.Cause(ctx))
		}
	}
	for name := range left {
		errs = errors.Join(errs, fmt.Errorf("processes in namespace %s keep coming", name))
	}
	return left, errs
}

// inside returns the processes in the namespaces, but not this one.
func inside(at map[inode]string) (map[int]string, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = proc.Close() }()
	names, err := proc.Readdirnames(-1)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	found := map[int]string{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(filepath.Join("/proc", name, "ns/net"), &st) != nil {
			continue
		}
		if where, ok := at[inode{st.Dev, st.Ino}]; ok {
			found[pid] = where
		}
	}
	return found, nil
}

// end ends processes and their descendants, all at the same time. What has not ended when it
// was asked to is stopped before it is killed: one that starts another meanwhile, which
// leaves the namespace, would be killed without it, and nobody would find that again.
func end(pids map[int]string) error {
	var found []Process
	var errs []error
	for pid := range pids {
		p, err := Identify(pid)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue
		}
		found, errs = append(found, p), append(errs, err)
	}
	more, err := descendants(slices.Collect(maps.Keys(pids))...)
	errs = append(errs, err)
	found = append(found, more...)
	_ = stopAll(found, Step{unix.SIGTERM, 300 * time.Millisecond}) // what it says of those that are left, the next says
	found, err = freeze(slices.DeleteFunc(found, func(p Process) bool { return !p.Alive() }))
	return errors.Join(append(errs, err, stopAll(found, Step{unix.SIGKILL, killLimit}))...)
}

// stopLimit is how long SIGSTOP may take: a process that waits for a device stops late, and
// starts nothing meanwhile.
const stopLimit = 200 * time.Millisecond

// runs reports whether it is neither stopped nor ended.
func (p Process) runs() bool {
	s, err := readStat(p.PID)
	return err == nil && s.start == p.Start && !strings.ContainsRune("TtZX", rune(s.state))
}

// freeze stops processes and their descendants, so that none of them starts another, and
// returns them all.
func freeze(roots []Process) (all []Process, err error) {
	seen := map[int]bool{}
	for next := roots; len(next) > 0; {
		for _, p := range next {
			seen[p.PID] = true
			if fd, ok, _ := p.open(); ok {
				_ = unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
				_ = unix.Close(fd)
			}
		}
		all = append(all, next...)
		for end := time.Now().Add(stopLimit); slices.ContainsFunc(next, Process.runs) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		// Those that were just stopped may have started others before that.
		found, err := descendants(slices.Collect(maps.Keys(seen))...)
		if err != nil {
			return all, err
		}
		next = slices.DeleteFunc(found, func(p Process) bool { return seen[p.PID] })
	}
	return all, nil
}
