package agent

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// maxAncestors bounds the way from a process to init.
const maxAncestors = 64

// sessionOf returns SSH_CONNECTION of the process, or of the nearest one above it that
// has it: sudo takes it from the environment of what it starts. Empty is none, also
// where a process cannot be looked at any more.
func sessionOf(pid int) string {
	for range maxAncestors {
		if pid <= 1 {
			return ""
		}
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			return ""
		}
		for v := range bytes.SplitSeq(environment, []byte{0}) {
			if s, ok := bytes.CutPrefix(v, []byte("SSH_CONNECTION=")); ok && len(s) > 0 {
				return string(s)
			}
		}
		if pid, err = parent(pid); err != nil {
			return ""
		}
	}
	return ""
}

// parent reads who started a process (proc(5), /proc/PID/stat). A program's name may
// have spaces and brackets in it.
func parent(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, text)
	}
	return strconv.Atoi(fields[1])
}
