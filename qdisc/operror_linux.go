package qdisc

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/mdlayher/netlink"
)

// OpError is a refused call to the kernel. It wraps the errno, so errors.Is works
// with fs.ErrExist, fs.ErrPermission and the like. A device that is gone is
// fs.ErrNotExist; a kind of qdisc that the kernel does not know is
// errors.ErrUnsupported and, unlike its errno, no fs.ErrNotExist.
type OpError struct {
	// Op is "qdisc add", "qdisc replace", "qdisc change", "qdisc delete" or "qdisc
	// read".
	Op string
	// Device is the interface, Namespace the network namespace's name; empty for
	// the process's own.
	Device, Namespace string
	// Err is the errno.
	Err error
	// Message is the kernel's extended acknowledgement, if it gave one.
	Message string
}

// Error is `qdisc replace: eth0 in netns web: invalid argument (kernel: "...")`.
func (e *OpError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", e.Op, e.Device)
	if e.Namespace != "" {
		fmt.Fprintf(&b, " in netns %s", e.Namespace)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	if e.Message != "" {
		fmt.Fprintf(&b, " (kernel: %q)", e.Message)
	}
	return b.String()
}

// Unwrap returns the errno.
func (e *OpError) Unwrap() error { return e.Err }

// Is adds what the errno alone does not say.
func (e *OpError) Is(target error) bool {
	return target == fs.ErrNotExist && errors.Is(e.Err, syscall.ENODEV)
}

// Hint says what to do about it, for people; empty when there is nothing to say.
func (e *OpError) Hint() string {
	switch {
	case errors.Is(e.Err, unknownKind{}):
		return "this kernel has no sch_netem; `netemctl doctor` says how to get it, and the ebpf engine works without"
	case errors.Is(e.Err, syscall.EPERM):
		return "changing a qdisc needs root, or CAP_NET_ADMIN in the namespace of the device"
	}
	return ""
}

// unknownKind is ENOENT on adding a qdisc: no module has that kind.
type unknownKind struct{}

func (unknownKind) Error() string { return syscall.ENOENT.Error() }

func (unknownKind) Is(target error) bool {
	return target == errors.ErrUnsupported || target == syscall.ENOENT
}

// opError makes an OpError of what the netlink library returned.
func (c *Conn) opError(op string, d Device, err error) error {
	if err == nil {
		return nil
	}
	e := &OpError{Op: op, Device: d.Name, Namespace: c.namespace, Err: err}
	if reply, ok := errors.AsType[*netlink.OpError](err); ok {
		e.Err, e.Message = reply.Err, reply.Message
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		e.Err = errno
	}
	return e
}
