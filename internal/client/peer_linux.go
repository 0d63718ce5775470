package client

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// peerPID is the process that listens at the other end of a unix socket, 0 when that
// cannot be told, as for one in another pid namespace.
func peerPID(conn net.Conn) int {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return 0
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// busy reports whether a thread of the process waits for the CPU, or in the kernel, and
// none is stopped: it will answer when its turn comes.
func busy(pid int) bool {
	states := threads(pid)
	return strings.ContainsAny(states, "RD") && !strings.ContainsAny(states, "Tt")
}

// stopped reports whether the process was stopped, as by SIGSTOP.
func stopped(pid int) bool { return strings.ContainsAny(threads(pid), "Tt") }

// switches is how often all threads of a process gave up the CPU (proc(5)): the states of
// threads that hand the work from one to the other are read one after the other, and can
// all be those of waiting ones.
func switches(pid int) (n uint64) {
	if pid == 0 {
		return 0
	}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	for _, f := range files {
		status, _ := os.ReadFile(f) // a thread that has ended has none
		for line := range strings.Lines(string(status)) {
			if kind, count, ok := strings.Cut(line, ":"); ok && strings.HasSuffix(kind, "voluntary_ctxt_switches") {
				k, _ := strconv.ParseUint(strings.TrimSpace(count), 10, 64)
				n += k
			}
		}
	}
	return n
}

// threads are the states of all threads of a process, one letter each (proc(5)); empty
// when they cannot be read.
func threads(pid int) string {
	if pid == 0 {
		return ""
	}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	var states strings.Builder
	for _, f := range files {
		stat, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		// The name before it stands in parentheses, and may have some itself.
		if _, state, ok := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " "); ok && state != "" {
			states.WriteByte(state[0])
		}
	}
	return states.String()
}
