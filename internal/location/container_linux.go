package location

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"netemd/internal/container"
	"netemd/internal/target"
	"netemd/namespaces"
)

// container finds the device at which a container's packets pass on this host: the other end
// of its veth pair, so that nothing in the container sees the fault; where it has none, as
// with macvlan, the container's own device.
func (f Finder) container(ctx context.Context, d target.Definition) (target.Target, error) {
	find := f.Container
	if find == nil {
		find = container.Find
	}
	c, err := find(ctx, d.Container)
	if err != nil {
		return target.Target{}, fmt.Errorf("target %s: %w", d.Subject(), err)
	}
	began, err := container.Started(c.PID)
	if err != nil { // it ended just now
		return target.Target{}, fmt.Errorf("target %s: %w: %w", d.Subject(), target.ErrVanished, err)
	}
	ns := namespaces.OfProcess(c.PID)
	cgroup := c.Cgroup
	if cgroup == "" || cgroup == "/" {
		cgroup = "/PATH"
	}
	if err := foreign(ns, "container "+c.String(), "cgroup:"+cgroup); err != nil {
		return target.Target{}, err
	}
	ns = lasting(ns)
	own, err := f.only(ctx, ns, d.Device)
	if err != nil {
		return target.Target{}, fmt.Errorf("container %s: %w", c, err)
	}
	host, ok, err := peer(ctx, own)
	if err != nil {
		return target.Target{}, fmt.Errorf("container %s: %w", c, err)
	}
	t := own.inside(d.Flows())
	if ok && host.cookie != own.cookie {
		t = host.outside(d.Flows())
		t.ClientNamespace = host.namespace
	}
	t.ServerNamespace, t.Process = ns, led(c.PID, began, own)
	t.Process.Container = c.ID
	if t.Address, err = addressOf(ctx, own, d); err != nil {
		return target.Target{}, fmt.Errorf("container %s: %w", c, err)
	}
	return t, nil
}

// addressOf is where clients reach what listens behind the device at d's one port; not valid
// for several, or none.
func addressOf(ctx context.Context, l link, d target.Definition) (found netip.AddrPort, err error) {
	if len(d.Ports) != 1 || d.Ports[0].First != d.Ports[0].Last {
		return found, nil
	}
	err = within(l.namespace, func(s *namespaces.Session) error {
		h, err := s.Links(ctx)
		if err != nil {
			return err
		}
		list, err := namespaces.Whole(func() ([]netlink.Addr, error) { return h.AddrList(l.Link, netlink.FAMILY_ALL) })
		for _, a := range list {
			if ip, ok := netip.AddrFromSlice(a.IP); ok && !found.IsValid() && net.IP.IsGlobalUnicast(a.IP) {
				found = netip.AddrPortFrom(ip.Unmap(), d.Ports[0].First)
			}
		}
		return err
	})
	return found, err
}
