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

// maxThreads is how many threads of a process are looked at: all of an agent that has not
// started hundreds of calls to the kernel. Reading one takes 10 to 30 us, four times a second.
const maxThreads = 64

// activity is how often threads of a process gave up the CPU (proc(5)), and the CPU time that
// all had, in ticks: the states of threads that hand the work from one to the other are read
// one after the other, and can all be those of waiting ones.
func activity(pid int) (n uint64) {
	if pid == 0 {
		return 0
	}
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, behind := split(stat)
	const first, userField, systemField = 3, 14, 15 // proc_pid_stat(5)
	if fields := strings.Fields(behind); len(fields) > systemField-first {
		for _, f := range []int{userField, systemField} {
			k, _ := strconv.ParseUint(fields[f-first], 10, 64)
			n += k
		}
	}
	for _, dir := range tasks(pid) {
		status, _ := os.ReadFile(dir + "/status") // a thread that has ended has none
		for line := range strings.Lines(string(status)) {
			if kind, count, ok := strings.Cut(line, ":"); ok && strings.HasSuffix(kind, "voluntary_ctxt_switches") {
				k, _ := strconv.ParseUint(strings.TrimSpace(count), 10, 64)
				n += k
			}
		}
	}
	return n
}

// tasks are the folders of at most maxThreads threads of a process, of the oldest ones.
func tasks(pid int) (dirs []string) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	f, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	names, _ := f.Readdirnames(maxThreads)
	for _, name := range names {
		dirs = append(dirs, filepath.Join(dir, name))
	}
	return dirs
}

// split cuts a stat behind the name, which stands in parentheses and may have some itself.
func split(stat []byte) (name, behind string) {
	s := string(stat)
	end := strings.LastIndexByte(s, ')') + 1
	return s[:end], strings.TrimSpace(s[end:])
}

// threads are the states of at most maxThreads threads of a process, one letter each
// (proc(5)); empty when they cannot be read.
func threads(pid int) string {
	if pid == 0 {
		return ""
	}
	var states strings.Builder
	for _, dir := range tasks(pid) {
		stat, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		if _, behind := split(stat); behind != "" {
			states.WriteByte(behind[0])
		}
	}
	return states.String()
}
