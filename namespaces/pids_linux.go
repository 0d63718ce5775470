package namespaces

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// PIDs returns the processes in the namespace, as `ip netns pids` does: those whose
// main thread is in it. A process that ends meanwhile may be missing. It needs the
// privilege to read /proc/PID/ns of all processes (CAP_SYS_PTRACE); others are left
// out without it.
func PIDs(name string) ([]int, error) {
	n, err := Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = n.Close() }()
	return n.PIDs()
}

// PIDs returns the processes in the namespace; see the function PIDs.
func (n *Namespace) PIDs() ([]int, error) {
	var own unix.Stat_t
	if err := unix.Fstat(n.FD(), &own); err != nil {
		return nil, fmt.Errorf("namespace pids: %s: %w", label(n.name), err)
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("namespace pids: %w", err)
	}
	defer func() { _ = proc.Close() }()
	names, err := proc.Readdirnames(-1)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("namespace pids: %w", err)
	}
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(filepath.Join("/proc", name, "ns/net"), &st) == nil && st.Dev == own.Dev && st.Ino == own.Ino {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
