package lab

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/namespaces"
)

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
	links, err := namespaces.Whole(h.LinkList)
	if err != nil {
		return false, err
	}
	for _, l := range links {
		a := l.Attrs()
		if a.Flags&net.FlagUp == 0 || a.Flags&net.FlagLoopback != 0 || a.OperState == netlink.OperUp {
			continue
		}
		// Since Linux 6.8 a question about one device has its event worked off at once, and
		// not up to a second later (linkwatch_sync_dev in net/core/link_watch.c).
		l, err := h.LinkByIndex(a.Index)
		if err != nil {
			return false, err
		}
		if l.Attrs().OperState != netlink.OperUp {
			return false, nil
		}
	}
	addrs, err := namespaces.Whole(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_V6) })
	if err != nil || len(addrs) == 0 {
		return err == nil, err
	}
	local := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}
	routes, err := namespaces.Whole(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(netlink.FAMILY_V6, local, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
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
