package service

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Identify returns the process that has the number now. The error is fs.ErrNotExist
// when there is none.
func Identify(pid int) (Process, error) {
	s, err := readStat(pid)
	return Process{PID: pid, Start: s.start}, err
}

// stat is what is read of proc_pid_stat(5).
type stat struct {
	state  byte
	parent int
	start  uint64
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The name may hold spaces and brackets; the fields after it are the 3rd and on.
	end := bytes.LastIndexByte(text, ')')
	fields := bytes.Fields(text[end+1:])
	const first, parentField, startField = 3, 4, 22
	if end < 0 || len(fields) <= startField-first {
		return stat{}, fmt.Errorf("/proc/%d/stat: unknown form", pid)
	}
	s := stat{state: fields[0][0]}
	var err1 error
	s.parent, err1 = strconv.Atoi(string(fields[parentField-first]))
	s.start, err = strconv.ParseUint(string(fields[startField-first]), 10, 64)
	return s, errors.Join(err1, err)
}

// Alive is false for a zombie, too.
func (p Process) Alive() bool {
	s, err := readStat(p.PID)
	return err == nil && s.start == p.Start && s.state != 'Z' && s.state != 'X'
}

// open returns a descriptor that holds the process; ok is false when it has ended.
func (p Process) open() (fd int, ok bool, err error) {
	if p.PID <= 0 || p.PID == os.Getpid() {
		return -1, false, nil
	}
	fd, err = unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) { // EINVAL: the number of a thread now
		return -1, false, nil
	}
	if err != nil {
		return -1, false, fmt.Errorf("process %d: pidfd_open: %w", p.PID, err)
	}
	// The descriptor holds the process; now look whether it is the right one.
	if !p.Alive() {
		_ = unix.Close(fd)
		return -1, false, nil
	}
	return fd, true, nil
}

// Stop signals the process, step by step, until it has ended. A process that has
// ended is no error.
func (p Process) Stop(steps ...Step) error {
	fd, ok, err := p.open()
	if !ok {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for _, s := range steps {
		if err := unix.PidfdSendSignal(fd, s.Signal, nil, 0); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return fmt.Errorf("process %d: %v: %w", p.PID, s.Signal, err)
		}
		if ended(fd, s.Wait) {
			return nil
		}
	}
	return fmt.Errorf("process %d: still runs after %v", p.PID, steps[len(steps)-1].Signal)
}

// ended waits for the end of the process behind the pidfd.
func ended(fd int, limit time.Duration) bool {
	deadline := time.Now().Add(limit)
	for {
		left := max(time.Until(deadline), 0)
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return err == nil && n > 0
	}
}

// stopAll is Stop for several processes at the same time.
func stopAll(all []Process, steps ...Step) error {
	type held struct {
		Process
		fd int
	}
	var errs []error
	var left []held
	for _, p := range all {
		fd, ok, err := p.open()
		errs = append(errs, err)
		if ok {
			left = append(left, held{p, fd})
		}
	}
	for _, s := range steps {
		for _, h := range left {
			if err := unix.PidfdSendSignal(h.fd, s.Signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				errs = append(errs, fmt.Errorf("process %d: %v: %w", h.PID, s.Signal, err))
			}
		}
		deadline := time.Now().Add(s.Wait)
		still := left[:0]
		for _, h := range left {
			if ended(h.fd, time.Until(deadline)) {
				_ = unix.Close(h.fd)
				continue
			}
			still = append(still, h)
		}
		left = still
	}
	for _, h := range left {
		errs = append(errs, fmt.Errorf("process %d: still runs after %v", h.PID, steps[len(steps)-1].Signal))
		_ = unix.Close(h.fd)
	}
	return errors.Join(errs...)
}

// descendants returns the living processes that descend from any of roots, without the
// roots themselves and without this process.
func descendants(roots ...int) ([]Process, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	names, err := proc.Readdirnames(-1)
	_ = proc.Close()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	children := map[int][]Process{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		s, err := readStat(pid)
		if err != nil || s.state == 'X' {
			continue // it has ended meanwhile
		}
		// A zombie may have children yet to be taken in by another: it is walked through.
		children[s.parent] = append(children[s.parent], Process{PID: pid, Start: s.start})
	}
	seen := map[int]bool{os.Getpid(): true}
	for _, r := range roots {
		seen[r] = true
	}
	var all []Process
	for queue := slices.Clone(roots); len(queue) > 0; queue = queue[1:] {
		for _, c := range children[queue[0]] {
			if !seen[c.PID] {
				seen[c.PID] = true
				queue = append(queue, c.PID)
				if c.Alive() {
					all = append(all, c)
				}
			}
		}
	}
	return all, nil
}
