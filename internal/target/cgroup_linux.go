package target

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/cgroup"
	"netemd/namespaces"
	"netemd/qdisc"
)

// ResolveCgroup finds the group of d, of the kinds cgroup and unit, and where its packets pass: the
// device that d says, or the one with the default route. Packets from it are selected by
// their socket, on egress; packets to it by the socket that they are for, on ingress, or on
// loopback on egress, where every packet passes. It needs CAP_SYS_ADMIN for another
// namespace than the process's own. The error is a *qdisc.FieldError for what does not
// exist or is ambiguous, and matches fs.ErrNotExist when that is the group.
func ResolveCgroup(ctx context.Context, d Definition) (Target, error) {
	c, err := cgroup.Find(d.Cgroup + d.Unit) // the one or the other
	if err != nil {
		return Target{}, err
	}
	ns, err := namespaces.Share(d.Namespace)
	if err != nil {
		return Target{}, err
	}
	defer ns.Release()
	links, err := ns.Links(ctx)
	if err != nil {
		return Target{}, err
	}
	device := d.Device
	if device == "" {
		if device, err = defaultDevice(links); err != nil {
			return Target{}, err
		}
	}
	t, err := Resolve(ctx, Selector{Namespace: d.Namespace, Device: device}, nil)
	if err != nil {
		return Target{}, err
	}
	t.Name, t.Definition = d.Name, d
	if t.Name == "" {
		t.Name = d.String()
	}
	to := d.Flows()
	t.To.Match, t.From.Match = to.Reverse().Of(c).Reverse(), to.Reverse().Of(c)
	if t.To.Hook == Egress && t.From.Hook == Egress { // loopback
		return t, nil
	}
	// Said from the target's side, so the other way round than from the device's.
	t.To.Hook, t.From.Hook = Ingress, Egress
	return t, nil
}

// defaultDevice is the one by which the default route leaves, of IPv4 if there is one. Of
// several routes the one with the lowest metric is the host's own choice.
func defaultDevice(links *netlink.Handle) (string, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := links.RouteList(nil, family)
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

// Standing is nil while the groups by which t's packets are selected are there, or there are
// none. The error is fs.ErrNotExist when one is gone, also when another one has its path by
// now.
func (t Target) Standing() error {
	var errs []error
	for _, c := range t.To.Match.Cgroups() {
		errs = append(errs, cgroup.Standing(c))
	}
	return errors.Join(errs...)
}
