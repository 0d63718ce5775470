// Package namespaces makes, opens, lists and enters named network namespaces, and
// makes veth pairs between them.
//
// Names are those of `ip netns`: a namespace is an nsfs file bind-mounted at
// /run/netns/<name>, so each sees what the other made. What is opened or entered is said by
// a reference: a name, or the absolute path of an nsfs file. Everything here needs Linux;
// making, entering and deleting need root (CAP_SYS_ADMIN, for veth CAP_NET_ADMIN in
// both namespaces). Elsewhere the functions return errors.ErrUnsupported.
//
// A namespace belongs to a thread. Work inside one goes through Do, a process
// through Start; both are safe for concurrent use, as is the whole package.
package namespaces

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Dir is where named namespaces are.
const Dir = "/run/netns"

// maxName is the longest file name (NAME_MAX of linux/limits.h), in bytes.
const maxName = 255

// ErrStale is a file in Dir that is no namespace: its mount is gone or never
// reached this mount namespace.
var ErrStale = errors.New("not a network namespace (nsfs): stale file")

// ErrName is what errors.Is finds in the refusal of a name.
var ErrName = errors.New("invalid namespace name")

// ErrSysfs is a /sys that could not be mounted.
var ErrSysfs = errors.New("mount /sys")

// Namespace is an open namespace. It keeps the namespace, and its devices, alive
// after its name is deleted, so do not hold it while idle.
type Namespace struct {
	name string
	file *os.File
}

// Name is the reference that it was opened by; empty for the process's own.
func (n *Namespace) Name() string { return n.name }

// FD is the descriptor of the nsfs file, valid until Close.
func (n *Namespace) FD() int { return int(n.file.Fd()) }

// Close releases the handle. A second Close returns os.ErrClosed.
func (n *Namespace) Close() error { return n.file.Close() }

// Entry is one file in Dir.
type Entry struct {
	Name string
	// Stale says that the file is no network namespace; opening it is ErrStale.
	Stale bool
}

// CheckName refuses what cannot be a namespace's name: allowed are 1 to 255 bytes
// without '/' and NUL, but not "." and "..". The error is an ErrName.
func CheckName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > maxName || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%w %q: want 1 to %d bytes without '/' and NUL, not \".\" or \"..\"", ErrName, name, maxName)
	}
	return nil
}

// label is the name in an error message.
func label(name string) string {
	if name == "" {
		return "the own namespace"
	}
	return name
}
