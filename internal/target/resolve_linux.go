package target

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/namespaces"
	"netemd/qdisc"
)

// Resolve finds the device of s as it is now, and the places of both directions. It
// needs CAP_SYS_ADMIN for another namespace than the process's own. The error is a
// *qdisc.FieldError that lists what there is for a device or a namespace that does not
// exist, and matches namespaces.ErrStale for a file that is no namespace. It is errors.ErrUnsupported for a
// GRE device without one remote end.
func Resolve(ctx context.Context, s Selector, lookup Lookup) (Target, error) {
	if err := s.Validate(); err != nil {
		return Target{}, err
	}
	m, err := s.Match(ctx, lookup)
	if err != nil {
		return Target{}, err
	}
	ns, err := namespaces.Share(s.Namespace)
	if err != nil {
		return Target{}, BadNamespace(s.Namespace, err)
	}
	defer ns.Release()
	links, err := ns.Links(ctx)
	if err != nil {
		return Target{}, err
	}
	link, err := device(links, s)
	if err == nil {
		err = readable(link)
	}
	if err != nil {
		return Target{}, err
	}
	a := link.Attrs()
	to := Place{Namespace: s.Namespace, Cookie: ns.Cookie(), Device: a.Name, Index: a.Index, Hook: Egress, Match: m}
	from := to
	from.Hook, from.Match = Ingress, m.Reverse()
	if a.RawFlags&unix.IFF_LOOPBACK != 0 {
		from.Hook = Egress
	}
	return Target{Name: s.String(), To: to, From: from}, nil
}

// readable refuses a device whose packets do not begin as those of its type do, so that a
// flow would be looked for in the wrong bytes. A GRE device of type ARPHRD_IPGRE or
// ARPHRD_IP6GRE carries bare IP where it has one remote end or is flow-based; without one,
// or with an IPv4 group, the outer header stands before each packet at both hooks
// (ipgre_tunnel_init and __ipgre_rcv of net/ipv4/ip_gre.c, ip6gre_tunnel_init of
// net/ipv6/ip6_gre.c, header_ops).
func readable(link netlink.Link) error {
	g, ok := link.(*netlink.Gretun)
	if !ok || g.FlowBased || len(g.Remote) > 0 && !g.Remote.IsUnspecified() && (g.Remote.To4() == nil || !g.Remote.IsMulticast()) {
		return nil
	}
	return fmt.Errorf("%s is a GRE device without one remote end: its packets begin with the outer header, behind which no flow is found: %w", g.Name, errors.ErrUnsupported)
}

// BadNamespace makes an error of Open's for a reference: a *qdisc.FieldError that says which
// namespaces there are for a name, and ErrVanished for a path that is gone.
func BadNamespace(name string, err error) error {
	if strings.HasPrefix(name, "/") && !strings.HasPrefix(name, "/proc/") {
		// It is looked at with the agent's rights: whoever asks is not told which files there are.
		return fmt.Errorf("%w: %w", &NotThereError{&qdisc.FieldError{Field: "netns", Value: name, Want: namespaces.WantReference}}, namespaces.ErrStale)
	}
	if errors.Is(err, namespaces.ErrStale) {
		return fmt.Errorf("%w: %w", &qdisc.FieldError{Field: "netns", Value: name, Want: "a network namespace"}, namespaces.ErrStale)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if strings.HasPrefix(name, "/proc/") {
		return fmt.Errorf("%w: %w", ErrVanished, err)
	}
	entries, listErr := namespaces.List()
	if listErr != nil {
		return errors.Join(err, listErr)
	}
	var names []string
	for _, e := range entries {
		if !e.Stale {
			names = append(names, e.Name)
		}
	}
	want := "a network namespace that exists; there is none below " + namespaces.Dir
	if len(names) > 0 {
		want = "a network namespace that exists: " + qdisc.Few(names)
	}
	return &NotThereError{&qdisc.FieldError{Field: "netns", Value: name, Want: want}}
}

// device finds the device of s.
func device(links *netlink.Handle, s Selector) (netlink.Link, error) {
	link, err := links.LinkByName(s.Device)
	if _, notFound := errors.AsType[netlink.LinkNotFoundError](err); !notFound {
		if err != nil {
			return nil, fmt.Errorf("find device %s: %w", s.Name(), err)
		}
		return link, nil
	}
	all, err := namespaces.Whole(links.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var names []string
	for _, l := range all {
		if !Ours(l.Attrs().Name) {
			names = append(names, l.Attrs().Name)
		}
	}
	where := "here"
	if s.Namespace != "" {
		where = "in netns " + s.Namespace
	}
	return nil, &NotThereError{&qdisc.FieldError{Field: "dev", Value: s.Device, Want: "a device that exists " + where + ": " + qdisc.Few(names)}}
}
