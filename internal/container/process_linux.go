package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Started is when a process began, in clock ticks since the boot: with it a number that was
// given again is told from the one before. The error is fs.ErrNotExist when there is none.
func Started(pid int) (uint64, error) {
	s, err := readStat("/proc", pid)
	return s.started, err
}

// Runs is nil while the process that began then runs, a number of clock ticks since the boot.
// The error is fs.ErrNotExist when it has ended, also when another one has its number.
func Runs(pid int, started uint64) error {
	s, err := readStat("/proc", pid)
	switch {
	case err != nil:
		return err
	case s.started != started, s.state == "Z", s.state == "X": // proc_pid_stat(5)
		return fmt.Errorf("process %d: it has ended: %w", pid, fs.ErrNotExist)
	}
	return nil
}

// First is the container with that whole id, by its first process; no engine is asked. The
// error is ErrUnknown where none of its processes runs.
func First(ctx context.Context, id string) (Container, error) {
	run, err := running(ctx, "/proc")
	if err != nil {
		return Container{}, err
	}
	c, ok := run[id]
	if !ok {
		return Container{}, fmt.Errorf("%w %q: it has no process", ErrUnknown, id)
	}
	return c, nil
}

// stat is what is read of /proc/PID/stat (proc_pid_stat(5)).
type stat struct {
	command string
	state   string
	parent  int
	started uint64
}

func readStat(proc string, pid int) (stat, error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, fmt.Errorf("process %d: %w", pid, errors.Join(err, goneIs(err)))
	}
	// The command stands in parentheses, and may have some in it.
	open, end := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	fields := strings.Fields(string(text[max(end, 0):]))
	const ppid, starttime = 2, 20 // behind the command, which counts as the first here
	if open < 0 || end < open || len(fields) <= starttime {
		return stat{}, fmt.Errorf("process %d: its stat has another form", pid)
	}
	s := stat{command: string(text[open+1 : end]), state: fields[1]}
	s.parent, err = strconv.Atoi(fields[ppid])
	if err == nil {
		s.started, err = strconv.ParseUint(fields[starttime], 10, 64)
	}
	return s, err
}

// goneIs is fs.ErrNotExist where the process ended between opening and reading (ESRCH).
func goneIs(err error) error {
	if strings.Contains(err.Error(), "no such process") {
		return fs.ErrNotExist
	}
	return nil
}

// running finds the containers that have processes, by their ids; the first of each is the
// one that began first, since what enters a container later is younger.
func running(ctx context.Context, proc string) (map[string]Container, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("find containers: %w", err)
	}
	found, began := map[string]Container{}, map[string]uint64{}
	note := func(c Container, started uint64) {
		if old, ok := began[c.ID]; !ok || started < old {
			found[c.ID], began[c.ID] = c, started
		}
	}
	shims := map[int]Container{}
	parents := map[int]stat{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("find containers: %w", context.Cause(ctx))
		}
		text, err := os.ReadFile(filepath.Join(proc, e.Name(), "cgroup"))
		if err != nil {
			continue // it has ended
		}
		id, runtime, unified := parseCgroups(string(text))
		s, err := readStat(proc, pid)
		if err != nil || s.state == "Z" {
			continue // without a namespace any more
		}
		switch {
		case id != "":
			note(Container{ID: id, Runtime: runtime, PID: pid, Cgroup: unified}, s.started)
		case strings.HasPrefix(s.command, "containerd-shim"):
			if c, ok := ofShim(proc, pid); ok {
				shims[pid] = c
			}
		default:
			s.command = unified
			parents[pid] = s
		}
	}
	// What ctr(8) runs may have any name, and its path says nothing: the shim above it does.
	for pid, s := range parents {
		if c, ok := shims[s.parent]; ok {
			c.PID, c.Cgroup = pid, s.command
			note(c, s.started)
		}
	}
	return found, nil
}

// ofShim reads which container a containerd-shim-runc-v2 stands above.
func ofShim(proc string, pid int) (Container, bool) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return Container{}, false
	}
	c := Container{Runtime: "containerd"}
	words := strings.Split(string(text), "\x00")
	for i, w := range words[:max(len(words)-1, 0)] {
		if w == "-id" {
			c.ID = words[i+1]
		}
	}
	return c, c.ID != ""
}
