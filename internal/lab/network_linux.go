package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/failpoint"
	"netemd/internal/target"
	"netemd/namespaces"
)

// congestionControl is what every node's TCP uses, whatever the host's: engines'
// results are compared with it. A child namespace of a host with another default may
// not be given one by sysctl, but a route's option works.
const congestionControl = "cubic"

// settings are the sysctls of a node, in the order in which they are set, since
// ip_forward resets others. A new namespace inherits some from the host, so all that
// matters is set, and to the kernel's default where there is one.
func settings(wire, six bool) []Sysctl {
	forward := "0"
	if wire {
		forward = "1"
	}
	all := []Sysctl{
		{"net.ipv4.ip_forward", forward},
		{"net.ipv4.conf.all.rp_filter", "0"},
		{"net.ipv4.conf.default.rp_filter", "0"},
		{"net.ipv4.conf.all.accept_redirects", "0"},
		{"net.ipv4.conf.default.accept_redirects", "0"},
		{"net.ipv4.conf.all.send_redirects", "0"},
		{"net.ipv4.conf.default.send_redirects", "0"},
		// One connection's history must not bend the next one's.
		{"net.ipv4.tcp_no_metrics_save", "1"},
		// min, default and max in bytes, as of a host with 4 GB and more.
		{"net.ipv4.tcp_rmem", "4096\t131072\t6291456"},
		{"net.ipv4.tcp_wmem", "4096\t16384\t4194304"},
		// Nothing may talk unasked.
		{"net.ipv6.conf.default.accept_dad", "0"},
		{"net.ipv6.conf.default.accept_ra", "0"},
		{"net.ipv6.conf.default.autoconf", "0"},
		{"net.ipv6.conf.default.router_solicitations", "0"},
	}
	if !six {
		return append(all, Sysctl{"net.ipv6.conf.default.disable_ipv6", "1"})
	}
	const noLinkLocal = "1" // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	return append(all,
		Sysctl{"net.ipv6.conf.default.disable_ipv6", "0"},
		Sysctl{"net.ipv6.conf.default.addr_gen_mode", noLinkLocal},
		Sysctl{"net.ipv6.conf.all.forwarding", forward},
	)
}

// shown are read and not set: they differ by kernel or host and shape what a client
// sees, as the times of a SYN's retries.
var shown = []string{
	"net.ipv4.tcp_syn_retries", "net.ipv4.tcp_syn_linear_timeouts",
	"net.ipv4.tcp_retries2", "net.ipv4.tcp_early_retrans", "net.ipv4.tcp_recovery",
}

// configure sets the calling thread's namespace and returns what it reads back. What
// this kernel does not have is left out.
func configure(wire, six bool) ([]Sysctl, error) {
	var back []Sysctl
	names := make([]string, 0, len(shown))
	for _, s := range settings(wire, six) {
		err := os.WriteFile(sysctlPath(s.Name), []byte(s.Value), 0)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("sysctl %s=%s: %w", s.Name, s.Value, err)
		}
		names = append(names, s.Name)
	}
	for _, name := range append(names, shown...) {
		text, err := os.ReadFile(sysctlPath(name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("sysctl %s: %w", name, err)
		}
		back = append(back, Sysctl{name, strings.TrimSpace(string(text))})
	}
	return back, nil
}

func sysctlPath(name string) string {
	return filepath.Join("/proc/sys", strings.ReplaceAll(name, ".", "/"))
}

// makeNode makes a node's namespace. It gets its name when it is marked and set.
func (m *Manager) makeNode(r *record, node string) error {
	d := r.Definition
	wire, six := true, false
	for _, n := range d.Nodes {
		wire = wire && n.Name != node
	}
	for _, l := range d.Links {
		six = six || l.Subnet.Addr().Is6()
	}
	err := namespaces.CreateWith(d.Namespace(node), func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := h.LinkSetAlias(lo, m.mark(d.Name, node)); err != nil {
			return fmt.Errorf("alias of lo: %w", err)
		}
		failpoint.At("lab.up.marked")
		if r.Sysctls[node], err = configure(wire, six); err != nil {
			return err
		}
		failpoint.At("lab.up.sysctls")
		return h.LinkSetUp(lo)
	})
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

// connect lays the cables of link i.
func (m *Manager) connect(d Definition, i int) error {
	for _, c := range d.cables(i) {
		if err := namespaces.CreateVeth(d.vethEnd(c.a), d.vethEnd(c.b)); err != nil {
			return err
		}
		failpoint.At("lab.up.veth")
		if err := errors.Join(m.reach(d, c.a, c.b.mac), m.reach(d, c.b, c.a.mac)); err != nil {
			return err
		}
	}
	return nil
}

// operationalTime bounds the wait for a link's carrier, which takes milliseconds on an
// idle machine and a second when the kernel's queue of link events is rate-limited.
const operationalTime = 10 * time.Second

// operational waits until every device of the namespace passes packets. The kernel
// tells a device of its carrier in a worker of its own (net/core/link_watch.c), and
// makes an IPv6 address reachable in another one after that (net/ipv6/addrconf.c,
// addrconf_dad_work); until then packets are dropped, and a first SYN would cost a
// second.
func operational(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, operationalTime, fmt.Errorf("a device in %s takes no packets after %s", namespace, operationalTime))
	defer cancel()
	return withHandle(ctx, namespace, func(h *netlink.Handle) error {
		for {
			ready, err := isOperational(h)
			if ready || err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(2 * time.Millisecond):
			}
		}
	})
}

// isOperational reports whether every device that is up has its carrier, and every
// IPv6 address its route.
func isOperational(h *netlink.Handle) (bool, error) {
	links, err := h.LinkList()
	if err != nil {
		return false, err
	}
	for _, l := range links {
		a := l.Attrs()
		if a.Flags&net.FlagUp != 0 && a.Flags&net.FlagLoopback == 0 && a.OperState != netlink.OperUp {
			return false, nil
		}
	}
	addrs, err := h.AddrList(nil, netlink.FAMILY_V6)
	if err != nil || len(addrs) == 0 {
		return err == nil, err
	}
	local := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}
	routes, err := h.RouteListFiltered(netlink.FAMILY_V6, local, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	if err != nil {
		return false, err
	}
	for _, a := range addrs {
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Dst != nil && r.Dst.IP.Equal(a.IP) }) {
			return false, nil
		}
	}
	return true, nil
}

func (d Definition) vethEnd(p port) namespaces.VethEnd {
	e := namespaces.VethEnd{Namespace: d.Namespace(p.node), Name: p.device, HardwareAddress: p.mac, NoPrefixRoute: true}
	if p.own.IsValid() {
		e.Addresses = append(e.Addresses, host(p.own))
	}
	return e
}

// reach adds the route to what lies behind the port, and its permanent neighbour: a
// lost ARP would be taken for a lost SYN.
func (m *Manager) reach(d Definition, p port, peer net.HardwareAddr) error {
	return withHandle(context.Background(), d.Namespace(p.node), func(h *netlink.Handle) error {
		link, err := h.LinkByName(p.device)
		if err != nil {
			return err
		}
		far := p.far.AsSlice()
		route := &netlink.Route{
			LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK,
			Dst: &net.IPNet{IP: far, Mask: net.CIDRMask(p.far.BitLen(), p.far.BitLen())},
		}
		if p.own.IsValid() {
			route.Src, route.Congctl = p.own.AsSlice(), congestionControl
		}
		err = h.RouteReplace(route)
		if err != nil && route.Congctl != "" {
			m.cfg.Log.Warn("this kernel takes no congestion control for a route; the host's is used", "want", congestionControl, "error", err)
			route.Congctl = ""
			err = h.RouteReplace(route)
		}
		if err != nil {
			return fmt.Errorf("route to %s by %s in %s: %w", p.far, p.device, d.Namespace(p.node), err)
		}
		failpoint.At("lab.up.route")
		err = h.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: far, HardwareAddr: peer,
		})
		if err != nil {
			return fmt.Errorf("neighbour %s of %s in %s: %w", p.far, p.device, d.Namespace(p.node), err)
		}
		return nil
	})
}

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
