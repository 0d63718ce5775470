package namespaces

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Create makes a namespace with that name, as `ip netns add` does. It is empty: lo
// is down. The error is fs.ErrExist when the name is taken, and then ErrStale too
// when it is taken by a stale file.
func Create(name string) error { return CreateWith(name, nil) }

// CreateWith makes a namespace that setup, running inside, has prepared before it
// gets its name: others see it either whole or not at all. When setup fails there is
// none. The rules of Do hold for setup.
func CreateWith(name string, setup func() error) error {
	if err := CheckName(name); err != nil {
		return fmt.Errorf("namespace create: %w", err)
	}
	err := onThread(nil, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		if setup != nil {
			if err := setup(); err != nil {
				return err
			}
		}
		return bind(name)
	})
	if err != nil {
		return fmt.Errorf("namespace create: %s: %w", name, err)
	}
	return nil
}

// bind gives the calling thread's namespace its name.
func bind(name string) error {
	unlock, err := lockDir()
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(Dir, name)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EEXIST) {
		if errors.Is(checkFile(path), ErrStale) {
			return fmt.Errorf("%w: %w", err, ErrStale)
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	_ = unix.Close(fd)
	if err := unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND, ""); err != nil {
		_ = unix.Unlink(path)
		return fmt.Errorf("bind mount %s: %w", path, err)
	}
	return nil
}

// lockDir makes Dir, a shared mount of its own so that names reach the other mount
// namespaces and leave them, and locks it as iproute2 does (ip/ipnetns.c), until the
// returned function is called.
func lockDir() (func(), error) {
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return nil, err
	}
	fd, err := unix.Open(Dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", Dir, err)
	}
	unlock := func() { _ = unix.Close(fd) }
	for {
		err = unix.Flock(fd, unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		unlock()
		return nil, fmt.Errorf("lock %s: %w", Dir, err)
	}
	if err := share(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

func share() error {
	err := unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// Dir is no mount point yet.
	if err := unix.Mount(Dir, Dir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind mount %s: %w", Dir, err)
	}
	if err := unix.Mount("", Dir, "none", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share mount %s: %w", Dir, err)
	}
	return nil
}

// Delete takes the name away; the namespace ends with its last process, socket and
// handle. A stale file is removed too. A name that does not exist is no error.
func Delete(name string) error {
	if err := CheckName(name); err != nil {
		return fmt.Errorf("namespace delete: %w", err)
	}
	path := filepath.Join(Dir, name)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	unlock, err := lockDir()
	if err != nil {
		return fmt.Errorf("namespace delete: %s: %w", name, err)
	}
	defer unlock()
	// Mounts may be stacked where somebody bound twice.
	for err == nil {
		err = unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("namespace delete: unmount %s: %w", path, err)
	}
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("namespace delete: unlink %s: %w", path, err)
	}
	return nil
}

// Prune removes the file of that name if it is stale, and leaves everything else as it
// is: unlike Delete it cannot hit a namespace that somebody makes meanwhile.
func Prune(name string) error {
	if err := CheckName(name); err != nil {
		return fmt.Errorf("namespace prune: %w", err)
	}
	path := filepath.Join(Dir, name)
	if !errors.Is(checkFile(path), ErrStale) {
		return nil
	}
	unlock, err := lockDir()
	if err != nil {
		return fmt.Errorf("namespace prune: %s: %w", name, err)
	}
	defer unlock()
	if !errors.Is(checkFile(path), ErrStale) {
		return nil
	}
	if err := unix.Unlink(path); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("namespace prune: %s: %w", name, err)
	}
	return nil
}

// Open opens the namespace of a reference: the empty one is the process's own, a name is one
// below Dir, and an absolute path is an nsfs file, such as /proc/4711/ns/net. The error is
// fs.ErrNotExist for one that does not exist and ErrStale for a file that is no network
// namespace; it never blocks on such a file.
func Open(ref string) (*Namespace, error) {
	file, err := open(ref)
	if err != nil {
		return nil, fmt.Errorf("namespace open: %s: %w", label(ref), err)
	}
	return &Namespace{name: ref, file: file}, nil
}

func open(ref string) (*os.File, error) {
	path, err := Path(ref)
	if err != nil {
		return nil, err
	}
	// The file is looked at before it is opened, since opening a pipe would hang and a
	// device does something; by a handle, so that nobody puts another in its place.
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(at) }()
	var st unix.Statfs_t
	if err := unix.Fstatfs(at, &st); err != nil {
		return nil, err
	}
	if st.Type != unix.NSFS_MAGIC {
		return nil, ErrStale
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	// An nsfs file may be of another kind, such as a mount namespace.
	kind, err := unix.IoctlRetInt(fd, unix.NS_GET_NSTYPE)
	if err == nil && kind != unix.CLONE_NEWNET {
		err = ErrStale
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// checkFile looks at the file without opening it, since opening a pipe would hang.
func checkFile(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	if st.Type != unix.NSFS_MAGIC {
		return ErrStale
	}
	return nil
}

// List returns what is in Dir, by name. It needs no privilege.
func List() ([]Entry, error) {
	files, err := os.ReadDir(Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("namespace list: %w", err)
	}
	entries := make([]Entry, 0, len(files))
	for _, f := range files {
		err := checkFile(filepath.Join(Dir, f.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted meanwhile
		}
		entries = append(entries, Entry{Name: f.Name(), Stale: err != nil})
	}
	return entries, nil
}

// Cookie returns the kernel's number of this namespace (SO_NETNS_COOKIE, since
// Linux 5.14). Unlike the inode it is never used again until the next boot.
func (n *Namespace) Cookie() (uint64, error) {
	var cookie uint64
	err := n.Do(context.Background(), func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(fd) }()
		cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("namespace cookie: %s: %w", label(n.name), err)
	}
	return cookie, nil
}
