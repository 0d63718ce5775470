package agent

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/namespaces"
)

// carriesDefaultRoute reports whether a default route of the own namespace, of either
// family and in any table, leaves by the device, or by one that stands on it.
func carriesDefaultRoute(index int) (bool, error) {
	links, err := namespaces.Whole(netlink.LinkList)
	if err != nil {
		return false, fmt.Errorf("list devices: %w", err)
	}
	on := above(links, index)
	routes, err := namespaces.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Type: unix.RTN_UNICAST}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	})
	if err != nil {
		return false, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones != 0 {
				continue
			}
		}
		if slices.Contains(on, r.LinkIndex) || slices.ContainsFunc(r.MultiPath, func(n *netlink.NexthopInfo) bool { return slices.Contains(on, n.LinkIndex) }) {
			return true, nil
		}
	}
	return false, nil
}

// above are the device and those that stand on it: its master, such as a bridge or a
// bond, and its VLANs and the like.
func above(links []netlink.Link, index int) []int {
	on := []int{index}
	for i := 0; i < len(on); i++ {
		for _, l := range links {
			a := l.Attrs()
			stands := a.ParentIndex == on[i] && slices.Contains([]string{"vlan", "macvlan", "macvtap", "ipvlan", "ipvtap"}, l.Type()) ||
				slices.ContainsFunc(links, func(s netlink.Link) bool { return s.Attrs().Index == on[i] && s.Attrs().MasterIndex == a.Index })
			if stands && !slices.Contains(on, a.Index) {
				on = append(on, a.Index)
			}
		}
	}
	return on
}

// plain kinds of devices hand packets on as they are, to devices that can be told.
var plain = []string{"device", "veth", "dummy", "bridge", "bond", "team", "vlan", "macvlan", "ipvlan", "ifb"}

// passes reports whether packets of c may pass the device in the own namespace: yes,
// unless it is clear that they pass another one.
func passes(index int, c Connection) bool {
	ways, err := waysOf(c)
	if err != nil || len(ways) == 0 {
		return true
	}
	links, err := namespaces.Whole(netlink.LinkList)
	if err != nil {
		return true
	}
	on := above(links, index)
	for _, l := range links {
		a := l.Attrs()
		if slices.Contains(ways, a.Index) && (slices.Contains(on, a.Index) || !slices.Contains(plain, l.Type())) {
			return true // a tunnel's packets pass other devices, too
		}
	}
	return false
}

// waysOf are the devices by which c leaves and at which it arrives; none when this end
// of it is not an address of the own namespace.
func waysOf(c Connection) ([]int, error) {
	addresses, err := namespaces.Whole(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	var ways []int
	for _, a := range addresses {
		if a.IP.Equal(c.Local.Addr().AsSlice()) {
			ways = append(ways, a.LinkIndex)
		}
	}
	if len(ways) == 0 {
		return nil, nil
	}
	routes, err := netlink.RouteGetWithOptions(c.Remote.Addr().AsSlice(), &netlink.RouteGetOptions{SrcAddr: c.Local.Addr().AsSlice()})
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		ways = append(ways, r.LinkIndex)
	}
	return ways, nil
}
