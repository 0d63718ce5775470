package offload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/fault"
	"netemd/namespaces"
)

// namespace is a namespace with connections to its kernel tables.
type namespace struct {
	name    string
	cookie  uint64
	session *namespaces.Session
	links   *netlink.Handle
	tool    *ethtool
}

// openNamespace opens the namespace of that name; empty is the process's own.
func openNamespace(ctx context.Context, name string) (*namespace, error) {
	s, err := namespaces.Share(name)
	if err != nil {
		return nil, err
	}
	n := &namespace{name: name, cookie: s.Cookie(), session: s}
	if n.links, err = s.Links(ctx); err == nil {
		n.tool, err = namespaces.Kept(ctx, s, dialEthtool)
	}
	if err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (n *namespace) close() { n.session.Release() }

// String is how errors call the namespace.
func (n *namespace) String() string { return label(n.name) }

func label(namespace string) string {
	if namespace == "" {
		return "the agent's namespace"
	}
	return namespace
}

// link returns the device with that index; the error is fs.ErrNotExist when there is
// none.
func (n *namespace) link(index int) (netlink.Link, error) {
	l, err := n.links.LinkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("device %d in %s: %w", index, n, notFound(err))
	}
	return l, nil
}

// linkByName is link for a name.
func (n *namespace) linkByName(name string) (netlink.Link, error) {
	l, err := n.links.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("device %s in %s: %w", name, n, notFound(err))
	}
	return l, nil
}

func notFound(err error) error {
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); gone || errors.Is(err, unix.ENODEV) {
		return fs.ErrNotExist
	}
	return err
}

// read returns what the device does with segments.
func (n *namespace) read(l netlink.Link) (state, error) {
	s, err := n.tool.features(l.Attrs().Index)
	if err != nil {
		return state{}, fmt.Errorf("%s in %s: %w", l.Attrs().Name, n, notFound(err))
	}
	s.segments = l.Attrs().GSOMaxSegs
	return s, nil
}

// setSegments sets how many segments a packet to the device may stand for.
func (n *namespace) setSegments(l netlink.Link, c change, segments uint32) error {
	if err := n.links.LinkSetGSOMaxSegs(l, int(segments)); err != nil {
		return fmt.Errorf("%s in %s: set %s %d: %w", c.Device, n, GSOMaxSegs, segments, notFound(err))
	}
	return nil
}

// opened are the namespaces that one call has opened.
type opened map[string]*namespace

func (o opened) get(ctx context.Context, name string) (*namespace, error) {
	if n := o[name]; n != nil {
		return n, nil
	}
	n, err := openNamespace(ctx, name)
	if err == nil {
		o[name] = n
	}
	return n, err
}

// identified finds the namespace of a change by its cookie, under whatever name; the
// error is fs.ErrNotExist when it is gone.
func (o opened) identified(ctx context.Context, c change) (*namespace, error) {
	n, err := o.get(ctx, c.Namespace)
	switch {
	case err == nil && n.cookie == c.Cookie:
		return n, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, namespaces.ErrStale):
		return nil, err
	}
	entries, err := namespaces.List()
	if err != nil {
		return nil, err
	}
	for _, name := range append([]string{""}, names(entries)...) {
		if n, err := o.get(ctx, name); err == nil && n.cookie == c.Cookie {
			return n, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", label(c.Namespace), fs.ErrNotExist)
}

// device finds the device that was read, by its identity.
func (o opened) device(ctx context.Context, d fault.Offload) (*namespace, netlink.Link, error) {
	n, err := o.identified(ctx, change{Namespace: d.Namespace, Cookie: d.Cookie})
	if err != nil {
		return nil, nil, err
	}
	l, err := n.link(d.Index)
	return n, l, err
}

func (o opened) close() {
	for _, n := range o {
		n.close()
	}
}
