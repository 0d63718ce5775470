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
// process's own) to an address: sysctls, and the route, whose part the sysctls have where
// there is none. It needs the right to enter the namespace.
func ReadTCP(ctx context.Context, namespace string, to netip.Addr) (p Path, err error) {
	n := &p.TCP
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
		p.enterRoute(to)
		return nil
	})
	if err != nil {
		return Path{}, fmt.Errorf("tcp settings: %w", err)
	}
	return p, nil
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
func (p *Path) enterRoute(to netip.Addr) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return
	}
	n, r := &p.TCP, routes[0]
	if r.RtoMin > 0 {
		n.RTOMin, n.RTOMinFrom = float64(r.RtoMin), probe.FromRoute
	}
	if r.Congctl != "" {
		n.Congestion, n.CongestionFrom = r.Congctl, probe.FromRoute
	}
	if source, ok := netip.AddrFromSlice(r.Src); ok {
		p.Source = source.Unmap()
	}
	p.Hop = to
	if hop, ok := netip.AddrFromSlice(r.Gw); ok {
		p.Hop = hop.Unmap()
	}
}
