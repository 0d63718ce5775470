package location

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/cgroup"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// cgroup finds the group of d, of the kinds cgroup and unit, and the device that the packets of
// its processes pass: the one that d says, or the one with the default route. Packets from
// them are selected by the socket that sends them, on egress; packets to them by the socket
// that they are for, on ingress, or on loopback on egress, where every packet passes.
func (Finder) cgroup(ctx context.Context, d target.Definition) (target.Target, error) {
	c, err := cgroup.Find(d.Cgroup + d.Unit) // the one or the other
	if errors.Is(err, fs.ErrNotExist) {
		// It is well-formed, and may come back.
		return target.Target{}, fmt.Errorf("target %s: %w: %s", d.Subject(), target.ErrVanished, err.Error())
	}
	if err != nil {
		return target.Target{}, fmt.Errorf("target %s: %w", d.Subject(), err)
	}
	name := d.Device
	if name == "" {
		if name, err = defaultDevice(ctx, d.Namespace); err != nil {
			return target.Target{}, fmt.Errorf("target %s: %w", d.Subject(), err)
		}
	}
	l, err := named(ctx, d.Namespace, name)
	if err != nil {
		return target.Target{}, err
	}
	return l.inside(d.Flows().Reverse().Of(c).Reverse()), nil
}

// defaultDevice is the one by which the default route leaves, of IPv4 if there is one. Of
// several routes the one with the lowest metric is the host's own choice.
func defaultDevice(ctx context.Context, namespace string) (name string, err error) {
	err = within(namespace, func(s *namespaces.Session) error {
		links, err := s.Links(ctx)
		if err == nil {
			name, err = deviceOfRoute(links)
		}
		return err
	})
	return name, err
}

func deviceOfRoute(links *netlink.Handle) (string, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := namespaces.Whole(func() ([]netlink.Route, error) { return links.RouteList(nil, family) })
		if err != nil {
			return "", fmt.Errorf("find the default route: %w", err)
		}
		routes = slices.DeleteFunc(routes, func(r netlink.Route) bool { return !isDefault(r) })
		if len(routes) == 0 {
			continue
		}
		best := slices.MinFunc(routes, func(a, b netlink.Route) int { return a.Priority - b.Priority })
		index := best.LinkIndex
		if len(best.MultiPath) == 1 {
			index = best.MultiPath[0].LinkIndex
		}
		if len(best.MultiPath) > 1 {
			return "", &qdisc.FieldError{Field: "device", Want: "one of those of the default route, which has several ways; say which"}
		}
		link, err := links.LinkByIndex(index)
		if err != nil {
			return "", fmt.Errorf("find the device of the default route: %w", err)
		}
		return link.Attrs().Name, nil
	}
	return "", &qdisc.FieldError{Field: "device", Want: "the device that the packets pass: there is no default route that would say it, and lo is never taken by itself"}
}

func isDefault(r netlink.Route) bool {
	if r.Type != 0 && r.Type != unix.RTN_UNICAST {
		return false
	}
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0 && r.Dst.IP.IsUnspecified()
}
