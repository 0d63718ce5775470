package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/namespaces"
)

// Diff compares a definition with the lab of its name that is up, and that lab with the
// kernel: namespaces, devices, addresses, routes, neighbours, sysctls, services and base
// impairments. What somebody added is found, too, of devices, addresses and routes, but not
// what the kernel adds by itself, nor netemd's own devices of faults. It changes nothing. The error is
// ErrUnknown when no lab of that name is up, and that of Validate for a definition that is
// not right.
func (m *Manager) Diff(ctx context.Context, d Definition) ([]Difference, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("lab diff: %s: %w", d.Name, err)
	}
	r, err := m.get(d.Name)
	if err != nil {
		return nil, fmt.Errorf("lab diff: %w", err)
	}
	var found []Difference
	if err := m.why(r); err != nil {
		found = append(found, Difference{"name", "up", err.Error()})
	}
	found = append(found, d.differ(r.record.Definition)...)
	if r.layout == nil {
		return found, nil // of an earlier netemd, and being taken down
	}
	l := r.layout
	sysctls := r.record.sysctlsByNode()
	var trees sysctlTrees
	defer func() { _ = trees.Close() }()
	var mu sync.Mutex
	bySpot := map[*spot][]Difference{}
	err = each(ctx, len(l.spots), func(ctx context.Context, i int) error {
		s := l.spots[i]
		differences, err := m.lookAt(ctx, l, s, sysctls[s.name], &trees)
		mu.Lock()
		defer mu.Unlock()
		bySpot[s] = differences
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("lab diff: %s: %w", d.Name, err)
	}
	for _, s := range l.spots {
		found = append(found, bySpot[s]...)
	}
	for _, s := range r.record.Services {
		if !s.Process.Alive() {
			found = append(found, Difference{"nodes." + s.Node + ".services." + s.Name, "running", "ended"})
		}
	}
	base, err := m.lookAtBases(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("lab diff: %s: %w", d.Name, err)
	}
	return append(found, base...), nil
}

// path is a spot in the words of a lab's file.
func (s *spot) path() string {
	switch s.role {
	case switchRole:
		return "switches." + s.name
	case wireRole:
		return linkPath(s.devices[0].link) + ".wire"
	case baseRole:
		return linkPath(s.devices[0].link) + ".base"
	}
	return "nodes." + s.name
}

const gone = "gone"

// lookAt compares a spot with its namespace.
func (m *Manager) lookAt(ctx context.Context, l *layout, s *spot, sysctls []Sysctl, trees *sysctlTrees) ([]Difference, error) {
	ns := l.definition.Namespace(s.name)
	state, err := m.look(ctx, l.definition, s.name)
	if err != nil {
		return nil, err
	}
	if state != ours {
		return []Difference{{s.path(), "namespace " + ns, map[namespaceState]string{absent: gone, foreign: "somebody else's"}[state]}}, nil
	}
	look := &looking{spot: s}
	err = namespaces.Do(ctx, ns, func() error {
		err := trees.with(func(tree *sysctlTree) error { return look.sysctls(tree, sysctls) })
		if err != nil {
			return err
		}
		return handle(look.network)
	})
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", ns, err)
	}
	return look.found, nil
}

// looking compares a spot with what is in the calling thread's namespace.
type looking struct {
	spot  *spot
	links map[string]netlink.Link
	found []Difference
}

// compare notes a difference at a path below the spot's.
func (c *looking) compare(path, want, have string, same bool) {
	if !same {
		if have == "" {
			have = gone
		}
		c.found = append(c.found, Difference{c.spot.path() + "." + path, want, have})
	}
}

func (c *looking) sysctls(tree *sysctlTree, want []Sysctl) error {
	for _, x := range want {
		have, err := tree.read(x.Name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		c.compare("sysctls."+x.Name, x.Value, have, sameValue(x.Value, have))
	}
	return nil
}

func (c *looking) network(h *netlink.Handle) error {
	all, err := namespaces.Whole(h.LinkList)
	if err != nil {
		return err
	}
	c.links = map[string]netlink.Link{}
	names := map[int]string{}
	for _, link := range all {
		c.links[link.Attrs().Name], names[link.Attrs().Index] = link, link.Attrs().Name
	}
	addresses, err := namespaces.Whole(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	neighbours, err := namespaces.Whole(func() ([]netlink.Neigh, error) { return h.NeighList(0, netlink.FAMILY_ALL) })
	if err != nil {
		return err
	}
	rules := map[string]bool{}
	for _, family := range c.spot.families() {
		all, err := namespaces.Whole(func() ([]netlink.Rule, error) { return h.RuleList(family) })
		if err != nil {
			return err
		}
		for _, r := range all {
			rules[fmt.Sprint(family, r.IifName, r.Table)] = true
		}
	}
	at := map[string]bool{}
	for _, a := range addresses {
		at[names[a.LinkIndex]+" "+a.IP.String()] = true
		c.address(names[a.LinkIndex], a)
	}
	macs := map[string]string{}
	for _, n := range neighbours {
		if n.State&netlink.NUD_PERMANENT != 0 {
			macs[names[n.LinkIndex]+" "+n.IP.String()] = n.HardwareAddr.String()
		}
	}
	c.devices(all)
	for _, d := range c.spot.devices {
		path := "devices." + d.name
		state := c.state(d)
		c.compare(path, "up", state, state == "up")
		if state == gone {
			continue // with all that was on it
		}
		mtu := c.links[d.name].Attrs().MTU
		c.compare(path+".mtu", strconv.Itoa(vethMTU), strconv.Itoa(mtu), mtu == vethMTU)
		for _, a := range d.addresses {
			c.compare(path+".addresses", a.String(), "", at[d.name+" "+a.String()])
		}
		for _, n := range d.neighbours {
			mac := macs[d.name+" "+n.address.String()]
			c.compare(path+".neighbours."+n.address.String(), n.mac.String(), mac, mac == n.mac.String())
		}
		for _, family := range c.spot.families() {
			if d.table != 0 {
				name := map[int]string{netlink.FAMILY_V4: "IPv4", netlink.FAMILY_V6: "IPv6"}[family]
				c.compare(path+".rule", fmt.Sprintf("table %d for what comes in of %s", d.table, name), "", rules[fmt.Sprint(family, d.name, d.table)])
			}
		}
	}
	return c.routes(h, names)
}

// vethMTU is what the kernel gives a veth device that is made without one (ETH_DATA_LEN of
// linux/if_ether.h).
const vethMTU = 1500

// kernelDevices are those that the kernel makes in each namespace where its tunnels are loaded
// (fb_tunnels_only_for_init_net of its ip-sysctl documentation).
var kernelDevices = []string{"lo", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0"}

// devices looks for devices that the lab has not, and at those that every node has.
func (c *looking) devices(all []netlink.Link) {
	own := append([]string{}, kernelDevices...)
	for _, d := range c.spot.devices {
		own = append(own, d.name)
	}
	fixed := []string{"lo"}
	if c.spot.role == switchRole {
		fixed = append(fixed, bridgeDevice)
	}
	for _, name := range fixed {
		state := "up"
		switch link := c.links[name]; {
		case link == nil:
			state = gone
		case link.Attrs().Flags&net.FlagUp == 0:
			state = "down"
		}
		c.compare("devices."+name, "up", state, state == "up")
	}
	for _, link := range all {
		if name := link.Attrs().Name; !slices.Contains(own, name) && !slices.Contains(fixed, name) && !target.Ours(name) {
			c.found = append(c.found, Difference{c.spot.path() + ".devices." + name, "", "there (" + link.Type() + ")"})
		}
	}
}

// address looks whether an address is one that somebody added to a device of the lab. Those
// of the link alone are the kernel's, or say nothing.
func (c *looking) address(name string, a netlink.Addr) {
	ip, ok := netip.AddrFromSlice(a.IP)
	if ip = ip.Unmap(); !ok || ip.IsLinkLocalUnicast() || name == "lo" && (ip == netip.AddrFrom4([4]byte{127, 0, 0, 1}) || ip == netip.IPv6Loopback()) {
		return
	}
	i := slices.IndexFunc(c.spot.devices, func(d *device) bool { return d.name == name })
	if i < 0 && name != "lo" || i >= 0 && slices.Contains(c.spot.devices[i].addresses, ip) {
		return
	}
	c.found = append(c.found, Difference{c.spot.path() + ".devices." + name + ".addresses", "", a.IPNet.String()})
}

// state says how a device is.
func (c *looking) state(d *device) string {
	link := c.links[d.name]
	if link == nil {
		return gone
	}
	a := link.Attrs()
	switch {
	case a.HardwareAddr.String() != d.mac.String():
		return "another device, " + a.HardwareAddr.String()
	case a.Flags&net.FlagUp == 0:
		return "down"
	case a.RawFlags&unix.IFF_RUNNING == 0:
		return "up, but its other end is down"
	}
	if bridge := c.links[bridgeDevice]; c.spot.role == switchRole && (bridge == nil || a.MasterIndex != bridge.Attrs().Index) {
		return "no port of the bridge"
	}
	return "up"
}

// routes compares the routes of all tables.
func (c *looking) routes(h *netlink.Handle, names map[int]string) error {
	have, known := map[string]string{}, map[string]bool{}
	var added []string
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := namespaces.Whole(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return err
		}
		for _, r := range all {
			to := everything(family == netlink.FAMILY_V6).String()
			if r.Dst != nil {
				to = r.Dst.String()
			}
			text := "by " + names[r.LinkIndex]
			if r.Gw != nil {
				text = "via " + r.Gw.String() + " " + text
			}
			key := fmt.Sprintf("%d %s", r.Table, to)
			if r.Table != unix.RT_TABLE_LOCAL && r.Protocol != unix.RTPROT_KERNEL && !target.Ours(names[r.LinkIndex]) {
				added = append(added, key)
			}
			have[key] = strings.TrimPrefix(have[key]+", "+text, ", ")
		}
	}
	for _, r := range c.spot.routes {
		table := cmp.Or(r.table, unix.RT_TABLE_MAIN)
		known[fmt.Sprintf("%d %s", table, r.to)] = true
	}
	for _, key := range added {
		if table, to, _ := strings.Cut(key, " "); !known[key] {
			known[key] = true // of several to the same once
			c.found = append(c.found, Difference{c.spot.path() + "." + routePath(table, to), "", have[key]})
		}
	}
	for _, r := range c.spot.routes {
		if c.links[r.device.name] == nil {
			continue // gone with its device
		}
		want := "by " + r.device.name
		if r.via.IsValid() {
			want = "via " + r.via.String() + " " + want
		}
		table := strconv.Itoa(cmp.Or(r.table, unix.RT_TABLE_MAIN))
		got := have[table+" "+r.to.String()]
		c.compare(routePath(table, r.to.String()), want, got, got == want)
	}
	return nil
}

// routePath is a route in a table in words.
func routePath(table, to string) string {
	if table == strconv.Itoa(unix.RT_TABLE_MAIN) {
		return "routes." + to
	}
	return "table " + table + ".routes." + to
}

// lookAtBases compares the base impairments with what their engine has.
func (m *Manager) lookAtBases(ctx context.Context, l *layout) ([]Difference, error) {
	var found []Difference
	for _, d := range l.bases() {
		p := l.at(d)
		path := linkPath(d.link) + ".a_to_b"
		if l.definition.Links[d.link].A == d.toward {
			path = linkPath(d.link) + ".b_to_a"
		}
		err := locate(ctx, &p)
		if err == nil && m.cfg.Engine != nil {
			n, err2 := m.cfg.Engine.Read(ctx, p)
			switch {
			case errors.Is(err2, os.ErrNotExist):
				err = err2
			case err2 != nil:
				return nil, err2
			case n.IsZero():
				found = append(found, Difference{path, d.impairment.String(), gone})
			case len(d.impairment.Differences(n)) > 0:
				found = append(found, Difference{path, d.impairment.String(), n.String()})
			}
		}
		if errors.Is(err, os.ErrNotExist) {
			found = append(found, Difference{path, d.impairment.String(), gone})
		} else if err != nil {
			return nil, err
		}
	}
	return found, nil
}
