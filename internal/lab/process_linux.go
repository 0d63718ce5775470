package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// process names a process so that a later one of the same number is not taken for
// it.
type process struct {
	PID int `json:"pid"`
	// Start is in clock ticks since boot (field 22 of proc_pid_stat(5)).
	Start uint64 `json:"start"`
}

// identify returns the process that has the number now. The error is fs.ErrNotExist
// when there is none.
func identify(pid int) (process, error) {
	_, start, err := stat(pid)
	return process{PID: pid, Start: start}, err
}

// stat reads a process's state letter and start.
func stat(pid int) (state byte, start uint64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, err
	}
	// The name may hold spaces and brackets; the fields after it are the 3rd and on.
	end := bytes.LastIndexByte(text, ')')
	fields := bytes.Fields(text[end+1:])
	const stateField, startField = 3, 22
	if end < 0 || len(fields) <= startField-stateField {
		return 0, 0, fmt.Errorf("/proc/%d/stat: unknown form", pid)
	}
	start, err = strconv.ParseUint(string(fields[startField-stateField]), 10, 64)
	return fields[0][0], start, err
}

// alive is false for a zombie, too.
func (p process) alive() bool {
	state, start, err := stat(p.PID)
	return err == nil && start == p.Start && state != 'Z' && state != 'X'
}

// step is a signal and how long to wait for the end that it asks for.
type step struct {
	signal unix.Signal
	wait   time.Duration
}

// stop signals the process, step by step, until it has ended. A process that has
// ended is no error.
func (p process) stop(steps ...step) error {
	if p.PID <= 0 || p.PID == os.Getpid() {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: pidfd_open: %w", p.PID, err)
	}
	defer func() { _ = unix.Close(fd) }()
	// The descriptor holds the process; now look whether it is the right one.
	if !p.alive() {
		return nil
	}
	for _, s := range steps {
		if err := unix.PidfdSendSignal(fd, s.signal, nil, 0); errors.Is(err, unix.ESRCH) {
			return nil
		} else if err != nil {
			return fmt.Errorf("process %d: %v: %w", p.PID, s.signal, err)
		}
		if ended(fd, s.wait) {
			return nil
		}
	}
	return fmt.Errorf("process %d: still runs after %v", p.PID, steps[len(steps)-1].signal)
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
