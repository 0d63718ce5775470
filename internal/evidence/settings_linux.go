package evidence

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/namespaces"
	"netemd/probe"
)

// kernelRTOMin is TCP_RTO_MIN (include/net/tcp.h), HZ/5, in ms.
const kernelRTOMin = 200

// Kernel is the release of the running kernel; "" when it does not say.
func Kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// ReadTCP reads what decides the timers of connections from a named namespace (empty: the
// process's own) to an address: sysctls, and the route. source is the address from which
// the route says that such connections come; invalid without a route, whose part the
// sysctls then have. It needs the right to enter the namespace.
func ReadTCP(ctx context.Context, namespace string, to netip.Addr) (n probe.NamespaceTCP, source netip.Addr, err error) {
	err = namespaces.Do(ctx, namespace, func() error {
		for _, s := range []struct {
			name string
			into **int
		}{
			{"tcp_syn_linear_timeouts", &n.SYNLinearTimeouts},
			{"tcp_syn_retries", &n.SYNRetries},
			{"tcp_synack_retries", &n.SYNACKRetries},
			{"tcp_early_retrans", &n.EarlyRetransmit},
			{"tcp_recovery", &n.Recovery},
			{"tcp_retries1", &n.Retries1},
			{"tcp_retries2", &n.Retries2},
		} {
			if v, err := strconv.Atoi(sysctl(s.name)); err == nil {
				*s.into = &v
			}
		}
		n.RTOMin, n.RTOMinFrom = kernelRTOMin, probe.FromKernel
		if us, err := strconv.Atoi(sysctl("tcp_rto_min_us")); err == nil {
			n.RTOMin, n.RTOMinFrom = float64(us)/1000, probe.FromSysctl
		}
		n.Congestion, n.CongestionFrom = sysctl("tcp_congestion_control"), probe.FromSysctl
		source = enterRoute(&n, to)
		return nil
	})
	if err != nil {
		return probe.NamespaceTCP{}, netip.Addr{}, fmt.Errorf("tcp settings: %w", err)
	}
	return n, source, nil
}

// sysctl is a value of the thread's namespace, "" where the kernel has none.
func sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// enterRoute enters what the route to an address says. A least timeout counts only where the
// route locks it (dst_metric_locked in tcp_rto_min), which iproute2 always does.
func enterRoute(n *probe.NamespaceTCP, to netip.Addr) (source netip.Addr) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return netip.Addr{}
	}
	r := routes[0]
	if r.RtoMin > 0 {
		n.RTOMin, n.RTOMinFrom = float64(r.RtoMin), probe.FromRoute
	}
	if r.Congctl != "" {
		n.Congestion, n.CongestionFrom = r.Congctl, probe.FromRoute
	}
	source, _ = netip.AddrFromSlice(r.Src)
	return source.Unmap()
}
