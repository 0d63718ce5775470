package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/failpoint"
	"netemd/namespaces"
)

// makeSpot makes a namespace, with its bridge where it is a switch, and returns the sysctls
// as read back. It gets its name when it is marked and set.
func (m *Manager) makeSpot(l *layout, s *spot, trees *sysctlTrees) (back []Sysctl, err error) {
	d := l.definition
	err = namespaces.CreateWith(d.Namespace(s.name), func() error {
		return handle(func(h *netlink.Handle) error {
			const loopback = 1 // LOOPBACK_IFINDEX of the kernel's net/flow.h
			lo := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: loopback}}
			if err := h.LinkSetAlias(lo, m.mark(d.Name, s.name)); err != nil {
				return fmt.Errorf("alias of lo: %w", err)
			}
			failpoint.At("lab.up.marked")
			err := trees.with(func(tree *sysctlTree) (err error) {
				back, err = configure(tree, s.settings(l.six))
				return err
			})
			if err != nil {
				return err
			}
			failpoint.At("lab.up.sysctls")
			if s.role == switchRole {
				if err := makeBridge(h); err != nil {
					return err
				}
				failpoint.At("lab.up.bridge")
			}
			return h.LinkSetUp(lo)
		})
	})
	if errors.Is(err, os.ErrExist) {
		err = fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return back, err
}

// makeBridge makes a bridge that says nothing by itself: it takes no part in a spanning
// tree, there being no loops, and asks for no multicast groups.
func makeBridge(h *netlink.Handle) error {
	off := false
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridgeDevice
	bridge := &netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &off}
	if err := h.LinkAdd(bridge); err != nil {
		return fmt.Errorf("bridge: %w", err)
	}
	if err := h.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("set the bridge up: %w", err)
	}
	return nil
}

// lay makes the veth pair whose one end is d. Neither end is ever seen elsewhere than in
// its namespace.
func (l *layout) lay(h *netlink.Handle, d *device) error {
	a, err := namespaces.Open(l.definition.Namespace(d.spot.name))
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	b, err := namespaces.Open(l.definition.Namespace(d.peer.spot.name))
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.Namespace = d.name, d.mac, netlink.NsFd(a.FD())
	err = h.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: d.peer.name, PeerHardwareAddr: d.peer.mac,
		PeerNamespace: netlink.NsFd(b.FD()), PeerTxQLen: -1,
	})
	if err != nil {
		return fmt.Errorf("veth %s in %s, %s in %s: %w", d.name, a.Name(), d.peer.name, b.Name(), err)
	}
	failpoint.At("lab.up.veth")
	return nil
}

// configured is a spot while it is being set up.
type configured struct {
	m     *Manager
	h     *netlink.Handle
	spot  *spot
	links map[string]netlink.Link
	where string // its namespace, for errors
}

// setUp gives the spot's devices all that they have, and the spot its routes. It runs
// inside.
func (m *Manager) setUp(l *layout, s *spot) error {
	return handle(func(h *netlink.Handle) error {
		c := &configured{m: m, h: h, spot: s, links: map[string]netlink.Link{}, where: l.definition.Namespace(s.name)}
		all, err := namespaces.Whole(h.LinkList)
		if err != nil {
			return fmt.Errorf("links in %s: %w", c.where, err)
		}
		for _, link := range all {
			c.links[link.Attrs().Name] = link
		}
		for _, d := range s.devices {
			if err := c.device(d); err != nil {
				return err
			}
		}
		for _, r := range s.routes {
			if err := c.route(r); err != nil {
				return err
			}
			failpoint.At("lab.up.route")
		}
		return nil
	})
}

// device sets one device up.
func (c *configured) device(d *device) error {
	link := c.links[d.name]
	if link == nil {
		return fmt.Errorf("device %s in %s: %w", d.name, c.where, os.ErrNotExist)
	}
	if c.spot.role == switchRole {
		if err := c.h.LinkSetMasterByIndex(link, c.links[bridgeDevice].Attrs().Index); err != nil {
			return fmt.Errorf("port %s in %s: %w", d.name, c.where, err)
		}
	}
	for _, a := range d.addresses {
		address := &netlink.Addr{IPNet: ipNet(host(a)), Flags: unix.IFA_F_NOPREFIXROUTE}
		if a.Is6() {
			address.Flags |= unix.IFA_F_NODAD
		}
		if err := c.h.AddrAdd(link, address); err != nil {
			return fmt.Errorf("address %s of %s in %s: %w", a, d.name, c.where, err)
		}
		failpoint.At("lab.up.address")
	}
	if err := c.h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s in %s up: %w", d.name, c.where, err)
	}
	for _, n := range d.neighbours {
		err := c.h.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: n.address.AsSlice(), HardwareAddr: n.mac,
		})
		if err != nil {
			return fmt.Errorf("neighbour %s of %s in %s: %w", n.address, d.name, c.where, err)
		}
	}
	if c.spot.role == switchRole {
		return c.port(link, d)
	}
	if d.table == 0 {
		return nil
	}
	for _, family := range c.spot.families() {
		rule := netlink.NewRule()
		rule.Family, rule.IifName, rule.Table, rule.Priority = family, d.name, d.table, d.table
		if err := c.h.RuleAdd(rule); err != nil {
			return fmt.Errorf("rule for what comes in by %s in %s: %w", d.name, c.where, err)
		}
	}
	failpoint.At("lab.up.rule")
	return nil
}

// families are those that the spot has routes of.
func (s *spot) families() []int {
	var families []int
	four, six := false, false
	for _, r := range s.routes {
		four, six = four || r.to.Addr().Is4(), six || r.to.Addr().Is6()
	}
	if four {
		families = append(families, netlink.FAMILY_V4)
	}
	if six {
		families = append(families, netlink.FAMILY_V6)
	}
	return families
}

// port tells the bridge which hardware address is behind a port, so that no packet goes to
// all of them until it has learnt it.
func (c *configured) port(link netlink.Link, d *device) error {
	err := c.h.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, State: netlink.NUD_NOARP, Flags: netlink.NTF_MASTER,
		HardwareAddr: d.peer.mac,
	})
	if err != nil {
		return fmt.Errorf("forwarding entry of port %s in %s: %w", d.name, c.where, err)
	}
	return nil
}

// route adds a route.
func (c *configured) route(r route) error {
	out := &netlink.Route{LinkIndex: c.links[r.device.name].Attrs().Index, Dst: ipNet(r.to), Table: r.table}
	if r.via.IsValid() {
		out.Gw = r.via.AsSlice()
		if r.table != 0 {
			out.Flags = int(netlink.FLAG_ONLINK)
		}
	} else {
		out.Scope = netlink.SCOPE_LINK
	}
	if r.source.IsValid() {
		out.Src, out.Congctl = r.source.AsSlice(), c.m.congestionControl()
	}
	err := c.h.RouteReplace(out)
	if err != nil && out.Congctl != "" {
		congctl := out.Congctl
		out.Congctl = ""
		if again := c.h.RouteReplace(out); again == nil {
			c.m.noCongestionControl(congctl, err)
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("route to %s by %s in %s: %w", r.to, r.device.name, c.where, err)
	}
	return nil
}

// ipNet is p as the library wants it.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// congestionControl is empty once this kernel has refused it for a route.
func (m *Manager) congestionControl() string {
	if m.hostCongestion.Load() {
		return ""
	}
	return congestionControl
}

func (m *Manager) noCongestionControl(want string, why error) {
	if !m.hostCongestion.Swap(true) {
		m.cfg.Log.Warn("this kernel takes no congestion control for a route; the host's is used", "want", want, "error", why)
	}
}
