package lab

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// treeUses is for how many namespaces one tree serves. The kernel has an entry for "ipv4"
// for each namespace that looked it up below the same net/ of the same procfs, all of them
// in one chain (proc_sys_compare of fs/proc/proc_sysctl.c), so that on the host's own /proc
// the thousandth namespace pays for the 999 before it: 1 ms for each of net/ipv4 and
// net/ipv6, and 0.3 ms for the tree of its own (Linux 6.18).
const treeUses = 16

// sysctlTree is /proc/sys, of the namespace of the thread that asks. It is for one goroutine
// at a time.
type sysctlTree struct{ fd, uses int }

// openTree opens a procfs of our own, mounted nowhere, which ends with its descriptor. Where
// that is refused, as to an agent in a container, it is the one at /proc.
func openTree() (*sysctlTree, error) {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC
	if mount, err := mountProc(); err == nil {
		defer func() { _ = unix.Close(mount) }()
		if fd, err := unix.Openat(mount, "sys", flags, 0); err == nil {
			return &sysctlTree{fd: fd}, nil
		}
	}
	fd, err := unix.Open("/proc/sys", flags, 0)
	if err != nil {
		return nil, fmt.Errorf("open /proc/sys: %w", err)
	}
	return &sysctlTree{fd: fd}, nil
}

func mountProc() (int, error) {
	fs, err := unix.Fsopen("proc", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer func() { _ = unix.Close(fs) }()
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, err
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
}

func (t *sysctlTree) close() { _ = unix.Close(t.fd) }

// maxSysctl is what is read of a value at most, in bytes; those of namespaces are short.
const maxSysctl = 4096

// read returns a value; the error is fs.ErrNotExist for what this kernel does not have.
func (t *sysctlTree) read(name string) (string, error) {
	fd, err := t.open(name, unix.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	return readAt(fd, name)
}

// set makes it the value, unless it is that already, and returns what is read back.
func (t *sysctlTree) set(s Sysctl) (string, error) {
	fd, err := t.open(s.Name, unix.O_RDWR)
	if err != nil {
		return "", err
	}
	defer func() { _ = unix.Close(fd) }()
	have, err := readAt(fd, s.Name)
	if err == nil && sameValue(have, s.Value) {
		return have, nil
	}
	if err := again(func() (err error) { _, err = unix.Pwrite(fd, []byte(s.Value), 0); return err }); err != nil {
		return "", fmt.Errorf("sysctl %s=%s: %w", s.Name, s.Value, err)
	}
	return readAt(fd, s.Name)
}

func (t *sysctlTree) open(name string, mode int) (fd int, err error) {
	err = again(func() (err error) {
		fd, err = unix.Openat(t.fd, strings.ReplaceAll(name, ".", "/"), mode|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("sysctl %s: %w", name, err)
	}
	return fd, nil
}

func readAt(fd int, name string) (string, error) {
	text := make([]byte, maxSysctl)
	n := 0
	err := again(func() (err error) { n, err = unix.Pread(fd, text, 0); return err })
	if err != nil {
		return "", fmt.Errorf("sysctl %s: %w", name, err)
	}
	return strings.TrimSpace(string(text[:max(n, 0)])), nil
}

func again(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// sysctlTrees lends trees, a new one after treeUses. It is safe for concurrent use; Close
// ends those that nobody has.
type sysctlTrees struct {
	mu   sync.Mutex
	free []*sysctlTree
}

var _ io.Closer = (*sysctlTrees)(nil)

// with runs f with a tree, for the namespace of the calling thread.
func (p *sysctlTrees) with(f func(*sysctlTree) error) error {
	t, err := p.take()
	if err != nil {
		return err
	}
	defer p.giveBack(t)
	return f(t)
}

func (p *sysctlTrees) take() (*sysctlTree, error) {
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		defer p.mu.Unlock()
		t := p.free[n-1]
		p.free = p.free[:n-1]
		return t, nil
	}
	p.mu.Unlock()
	return openTree()
}

func (p *sysctlTrees) giveBack(t *sysctlTree) {
	if t.uses++; t.uses >= treeUses {
		t.close()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, t)
}

func (p *sysctlTrees) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.free {
		t.close()
	}
	p.free = nil
	return nil
}
