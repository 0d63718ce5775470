package namespaces

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// maxPath is the longest path (PATH_MAX of linux/limits.h without the closing NUL).
const maxPath = 4095

// WantReference says what a reference may be, for errors.
const WantReference = "the name of a network namespace below " + Dir + ", the absolute path of its file, such as /proc/4711/ns/net, or pid:4711"

// ParseReference reads what a user writes for a namespace and returns the reference of it:
// pid:4711 is /proc/4711/ns/net, a path below Dir is its name, and everything else stays.
// The error is an ErrName.
func ParseReference(text string) (string, error) {
	if pid, ok := strings.CutPrefix(text, "pid:"); ok {
		n, err := strconv.Atoi(pid)
		if err != nil || n <= 0 {
			return "", fmt.Errorf("%w %q: want pid:N, of a process", ErrName, text)
		}
		return OfProcess(n), nil
	}
	if dir, name := filepath.Split(text); filepath.Clean(dir) == Dir && CheckName(name) == nil {
		return name, nil
	}
	return text, CheckReference(text)
}

// OfProcess is the reference of the namespace that a process is in, for as long as it lives.
func OfProcess(pid int) string { return "/proc/" + strconv.Itoa(pid) + "/ns/net" }

// CheckReference refuses what is no reference of a namespace: allowed are the empty one, a
// name as of CheckName, and an absolute path without "..", "." and doubled '/'. A path of
// /proc/self is the reader's own, and so is none. The error is an ErrName.
func CheckReference(ref string) error {
	switch {
	case ref == "":
		return nil
	case !strings.HasPrefix(ref, "/"):
		if strings.HasPrefix(ref, "pid:") {
			return fmt.Errorf("%w %q: want %s", ErrName, ref, WantReference)
		}
		return CheckName(ref)
	case len(ref) > maxPath, filepath.Clean(ref) != ref, strings.ContainsRune(ref, 0),
		strings.HasPrefix(ref, "/proc/self/"), strings.HasPrefix(ref, "/proc/thread-self/"):
		return fmt.Errorf("%w %q: want %s", ErrName, ref, WantReference)
	}
	return nil
}

// Path is where the file of a reference is: of a name below Dir, of the empty one the
// process's own. The error is an ErrName.
func Path(ref string) (string, error) {
	switch err := CheckReference(ref); {
	case err != nil:
		return "", err
	case ref == "":
		return "/proc/self/ns/net", nil
	case ref[0] == '/':
		return ref, nil
	}
	return filepath.Join(Dir, ref), nil
}
