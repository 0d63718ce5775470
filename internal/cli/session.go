package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// SSHConnection is SSH_CONNECTION of the ssh session in which this process runs, ""
// outside of one. sudo takes the variable away, so the processes above are looked at,
// too, which needs root for those of others.
func SSHConnection() string {
	if c := os.Getenv(sshVariable); c != "" {
		return c
	}
	return sshAbove("/proc", os.Getppid())
}

const sshVariable = "SSH_CONNECTION"

// sshAbove looks for the variable in a process and those above it. proc is where
// procfs is mounted.
func sshAbove(proc string, pid int) string {
	const deepest = 32 // far above what shells and sudo nest
	for range deepest {
		if pid <= 1 {
			return ""
		}
		dir := filepath.Join(proc, strconv.Itoa(pid))
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil {
			for v := range strings.SplitSeq(string(environ), "\x00") {
				if c, ok := strings.CutPrefix(v, sshVariable+"="); ok && c != "" {
					return c
				}
			}
		}
		if pid, err = parent(dir); err != nil {
			return ""
		}
	}
	return ""
}

// parent reads a process's parent from its stat: the second field behind the name in
// parentheses, which may itself have parentheses (proc(5)).
func parent(dir string) (int, error) {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return 0, os.ErrInvalid
	}
	return strconv.Atoi(fields[1])
}
