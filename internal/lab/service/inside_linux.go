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

// end ends processes and their descendants, all at the same time.
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
	errs = append(errs, err, stopAll(append(found, more...), Step{unix.SIGTERM, 300 * time.Millisecond}, Step{unix.SIGKILL, killLimit}))
	return errors.Join(errs...)
}
