package evidence

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/probe"
)

// TestReadTCP reads what is set, each from where the kernel takes it.
func TestReadTCP(t *testing.T) {
	p := newPair(t)
	if Kernel() == "" {
		t.Error("the kernel has no release")
	}
	path, err := ReadTCP(t.Context(), p.client, server4.Addr())
	if err != nil {
		t.Fatal(err)
	}
	before := path.TCP
	if path.Source != client4.Addr() || path.Hop != server4.Addr() {
		t.Errorf("connections come from %v and go to %v, want %v and %v", path.Source, path.Hop, client4.Addr(), server4.Addr())
	}
	if before.RTOMin != kernelRTOMin || before.RTOMinFrom == probe.FromRoute || before.Congestion == "" || before.CongestionFrom != probe.FromSysctl {
		t.Errorf("before: %+v, want 200 ms and the sysctl's congestion control", before)
	}
	if before.SYNRetries == nil || before.SYNACKRetries == nil || before.Retries1 == nil || before.Retries2 == nil || before.Recovery == nil || !before.TLP() {
		t.Errorf("before: %+v, want all that every kernel has, and loss probes", before)
	}
	p.in(t, p.client, func() error {
		for name, v := range map[string]string{"tcp_early_retrans": "0", "tcp_retries2": "7", "tcp_rto_min_us": "50000"} {
			if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(v), 0); err != nil && (!os.IsNotExist(err) || name != "tcp_rto_min_us") {
				return err
			}
		}
		return nil
	})
	path, err = ReadTCP(t.Context(), p.client, server4.Addr())
	got := path.TCP
	if err != nil || got.TLP() || *got.Retries2 != 7 {
		t.Errorf("with sysctls: %+v, %v; want no loss probes and tcp_retries2 7", got, err)
	}
	if got.RTOMin != 50 && got.RTOMinFrom == probe.FromSysctl {
		t.Errorf("least timeout %v ms from the %s, want 50", got.RTOMin, got.RTOMinFrom)
	}
	p.in(t, p.client, func() error {
		l, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{LinkIndex: l.Attrs().Index, Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		if err != nil {
			return err
		}
		for _, r := range routes {
			r.RtoMin, r.RtoMinLock, r.Congctl = 20, true, "reno"
			if err := netlink.RouteReplace(&r); err != nil {
				return err
			}
		}
		return nil
	})
	path, err = ReadTCP(t.Context(), p.client, server4.Addr())
	got = path.TCP
	if err != nil || got.RTOMin != 20 || got.RTOMinFrom != probe.FromRoute || got.Congestion != "reno" || got.CongestionFrom != probe.FromRoute {
		t.Errorf("with a route: %+v, %v; want 20 ms and reno of the route", got, err)
	}
	if other, err := ReadTCP(t.Context(), p.server, client4.Addr()); err != nil || other.TCP.RTOMin != kernelRTOMin || !other.TCP.TLP() {
		t.Errorf("the other end: %+v, %v; want it as it was", other, err)
	}
	if _, err := ReadTCP(t.Context(), "nt-ev-nowhere", client4.Addr()); err == nil {
		t.Error("a namespace that is not there has settings")
	}
}
