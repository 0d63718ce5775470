package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/namespaces"
)

// identity tells namespaces apart. It stays unique only while something holds the
// namespace, since the kernel uses inodes again at once; so a look at an attachment
// goes with it.
type identity struct{ dev, inode uint64 }

// meant checks that the namespace which has this name now is the one with this
// cookie, where that is known.
func meant(name string, cookie uint64) error {
	if cookie == 0 {
		return nil
	}
	return namespaces.Within(name, func(s *namespaces.Session) error {
		if s.Cookie() != cookie {
			return fmt.Errorf("namespace %q was made anew: %w", name, fs.ErrNotExist)
		}
		return nil
	})
}

// identify looks at the namespace that has this name now.
func identify(name string) (identity, error) {
	path, err := namespaces.Path(name)
	if err != nil {
		return identity{}, err
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return identity{}, fmt.Errorf("namespace %q: %w", name, err)
	}
	return identity{dev: uint64(st.Dev), inode: st.Ino}, nil
}

// inside runs f in the namespace that has this name now.
func inside(ctx context.Context, name string, f func() error) error {
	return namespaces.Within(name, func(s *namespaces.Session) error { return s.Do(ctx, f) })
}

// there looks whether the device of p is where it was: in another namespace of the name, even
// under the same index, it is another one. The error is fs.ErrNotExist when it is gone.
func there(ctx context.Context, p target.Place) error {
	if err := meant(p.Namespace, p.Cookie); err != nil {
		return err
	}
	return inside(ctx, p.Namespace, func() error {
		_, err := device(p.Index)
		return err
	})
}

// device finds a link by index in the calling thread's namespace. The error is
// fs.ErrNotExist when there is none.
func device(index int) (netlink.Link, error) {
	link, err := netlink.LinkByIndex(index)
	if gone(err) {
		return nil, fmt.Errorf("device %d: %w", index, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("device %d: %w", index, err)
	}
	return link, nil
}

// gone reports that err means that a device is no longer there.
func gone(err error) bool {
	var notFound netlink.LinkNotFoundError
	return errors.As(err, &notFound) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO)
}
