package offload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/vishvananda/netlink"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
)

// device is one device of a path.
type device struct {
	in   *namespace
	link netlink.Link
}

// Read returns the devices through which packets of the places pass, and what of
// ethtool's features is in force there that makes or takes super-packets (and
// GSOMaxSegs): each place's device; where a device of ours is the place, also the
// other devices of its namespace, which is a link's; and the other end of each that is
// one of a veth pair, unless it is in a namespace without a name. It reads only, and
// needs root (CAP_SYS_ADMIN, to enter namespaces). The error is fs.ErrNotExist when a
// place is gone.
func (k *Keeper) Read(ctx context.Context, places []target.Place) ([]fault.Offload, error) {
	in := opened{}
	defer in.close()
	devices, err := k.path(ctx, in, places)
	if err != nil {
		return nil, fmt.Errorf("offload read: %w", err)
	}
	found := make([]fault.Offload, 0, len(devices))
	for _, d := range devices {
		s, err := d.in.read(d.link)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("offload read: %w", err)
		}
		found = append(found, fault.Offload{
			Namespace: d.in.name, Device: d.link.Attrs().Name, Cookie: d.in.cookie, Index: d.link.Attrs().Index, Before: s.names(),
		})
	}
	return found, nil
}

// path lists the devices of the places, each once.
func (k *Keeper) path(ctx context.Context, in opened, places []target.Place) ([]device, error) {
	var devices []device
	type identity struct {
		cookie uint64
		index  int
	}
	seen := map[identity]bool{}
	add := func(d device) {
		if id := (identity{d.in.cookie, d.link.Attrs().Index}); !seen[id] {
			seen[id] = true
			devices = append(devices, d)
		}
	}
	for _, p := range places {
		n, err := in.get(ctx, p.Namespace)
		if err != nil {
			return nil, err
		}
		if p.Cookie != 0 && p.Cookie != n.cookie {
			return nil, fmt.Errorf("%s is another namespace of that name: %w", n, fs.ErrNotExist)
		}
		links, err := n.devices(p)
		if err != nil {
			return nil, err
		}
		for _, l := range links {
			add(device{n, l})
			if peer, ok := k.peer(ctx, in, device{n, l}); ok {
				add(peer)
			}
		}
	}
	return devices, nil
}

// devices are the place's own and, where it is one of ours, those of the whole link.
func (n *namespace) devices(p target.Place) ([]netlink.Link, error) {
	own, err := n.placeLink(p)
	if err != nil || !p.Owned {
		return []netlink.Link{own}, err
	}
	links := []netlink.Link{own}
	all, err := namespaces.Whole(n.links.LinkList)
	if err != nil {
		return nil, fmt.Errorf("devices in %s: %w", n, err)
	}
	for _, l := range all {
		// Others than veth are not a link's: loopback, and the ebpf engine's queue.
		if l.Type() == "veth" && l.Attrs().Index != own.Attrs().Index {
			links = append(links, l)
		}
	}
	return links, nil
}

func (n *namespace) placeLink(p target.Place) (netlink.Link, error) {
	if p.Index == 0 {
		return n.linkByName(p.Device)
	}
	return n.link(p.Index)
}

// peer finds the other end of a veth pair by its index and the kernel's number for its
// namespace; names say nothing about it. What cannot be found is left out: it is in a
// namespace without a name, such as a container's.
func (k *Keeper) peer(ctx context.Context, in opened, d device) (device, bool) {
	a := d.link.Attrs()
	if d.link.Type() != "veth" || a.ParentIndex == 0 {
		return device{}, false
	}
	n := d.in
	if a.NetNsID >= 0 {
		name, ok := k.find(d.in, a.NetNsID)
		if !ok {
			return device{}, false
		}
		other, err := in.get(ctx, name)
		if err != nil {
			return device{}, false
		}
		n = other
	}
	l, err := n.link(a.ParentIndex)
	// The namespace may have been deleted, and its name taken, between the two looks:
	// the pair must know each other.
	if err != nil || l.Type() != "veth" || l.Attrs().ParentIndex != a.Index {
		return device{}, false
	}
	return device{n, l}, true
}

// find returns the name of the namespace that has that number in n.
func (k *Keeper) find(n *namespace, number int) (string, bool) {
	is := func(name string) bool {
		same := false
		err := namespaces.Within(name, func(s *namespaces.Session) error {
			got, err := n.links.GetNetNsIdByFd(s.FD())
			same = got == number
			return err
		})
		return err == nil && same
	}
	id := peerID{n.cookie, number}
	k.mu.Lock()
	name, ok := k.known[id]
	k.mu.Unlock()
	if ok && is(name) {
		return name, true
	}
	entries, err := namespaces.List()
	if err != nil {
		return "", false
	}
	for _, name := range append([]string{""}, names(entries)...) {
		if is(name) {
			k.mu.Lock()
			k.known[id] = name
			k.mu.Unlock()
			return name, true
		}
	}
	return "", false
}

func names(entries []namespaces.Entry) []string {
	var found []string
	for _, e := range entries {
		if !e.Stale {
			found = append(found, e.Name)
		}
	}
	return found
}
