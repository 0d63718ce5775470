package lab

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/namespaces"
)

// withHandle runs f with an rtnetlink handle inside the namespace.
func withHandle(ctx context.Context, namespace string, f func(*netlink.Handle) error) error {
	return namespaces.Do(ctx, namespace, func() error { return handle(f) })
}

// handle runs f with an rtnetlink handle of the calling thread's namespace.
func handle(f func(*netlink.Handle) error) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	return f(h)
}

// readMark returns the ownership mark of a namespace, empty when it has none.
func readMark(ctx context.Context, namespace string) (mark string, err error) {
	err = withHandle(ctx, namespace, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err == nil {
			mark = lo.Attrs().Alias
		}
		return err
	})
	return mark, err
}

// locate fills in the place's interface index and its namespace's cookie, both of one
// and the same namespace. The error is fs.ErrNotExist when the namespace or the device
// is gone.
func locate(ctx context.Context, p *target.Place) error {
	n, err := namespaces.Open(p.Namespace)
	if err != nil {
		return err
	}
	defer func() { _ = n.Close() }()
	cookie, err := n.Cookie()
	if err != nil {
		return err
	}
	return n.Do(ctx, func() error {
		return handle(func(h *netlink.Handle) error {
			link, err := h.LinkByName(p.Device)
			if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone {
				err = os.ErrNotExist
			}
			if err != nil {
				return fmt.Errorf("device %s in %s: %w", p.Device, p.Namespace, err)
			}
			p.Index, p.Cookie = link.Attrs().Index, cookie
			return nil
		})
	})
}
