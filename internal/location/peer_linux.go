package location

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/namespaces"
)

// peer finds the other end of a veth pair, by its index and the number that the kernel gave
// its namespace in that of l (IFLA_LINK and IFLA_LINK_NETNSID of linux/if_link.h), never by
// a name: devices are renamed. It is false for a device that is no veth, and for one whose
// other end is in a namespace that no name and no process leads to.
func peer(ctx context.Context, l link) (link, bool, error) {
	a := l.Attrs()
	if l.Type() != "veth" || a.ParentIndex == 0 {
		return link{}, false, nil
	}
	if a.NetNsID < 0 { // in the same namespace
		return at(ctx, l.namespace, l, a.ParentIndex)
	}
	var found string
	var ok bool
	err := within(l.namespace, func(s *namespaces.Session) error {
		h, err := s.Links(ctx)
		if err != nil {
			return err
		}
		found, ok, err = numbered(h, a.NetNsID)
		return err
	})
	if err != nil || !ok {
		return link{}, false, err
	}
	return at(ctx, found, l, a.ParentIndex)
}

// numbered is the namespace that has the number id in that of h: the agent's own, one with a
// name, or that of a process.
func numbered(h *netlink.Handle, id int) (ref string, ok bool, err error) {
	is := func(ref string) (bool, error) {
		ns, err := namespaces.Open(ref)
		if err != nil {
			return false, err
		}
		defer func() { _ = ns.Close() }()
		got, err := h.GetNetNsIdByFd(ns.FD())
		if err != nil {
			return false, fmt.Errorf("number of namespace %s: %w", ref, err)
		}
		return got == id, nil
	}
	if ok, err := is(""); ok || err != nil {
		return "", ok, err
	}
	entries, err := namespaces.List()
	if err != nil {
		return "", false, err
	}
	for _, e := range entries {
		if ok, err := is(e.Name); ok && err == nil { // one that goes meanwhile is none
			return e.Name, true, nil
		}
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return "", false, fmt.Errorf("find namespaces: %w", err)
	}
	seen := map[uint64]bool{}
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		var st unix.Stat_t
		ref := namespaces.OfProcess(pid)
		if unix.Stat(ref, &st) != nil || seen[st.Ino] {
			continue
		}
		seen[st.Ino] = true
		if ok, err := is(ref); ok && err == nil {
			return ref, true, nil
		}
	}
	return "", false, nil
}

// at is the device with that index, if it is the other end of l.
func at(ctx context.Context, namespace string, l link, index int) (link, bool, error) {
	all, cookie, err := linksOf(ctx, namespace)
	if err != nil {
		return link{}, false, err
	}
	for _, o := range all {
		if a := o.Attrs(); a.Index == index && o.Type() == "veth" && a.ParentIndex == l.Attrs().Index {
			return link{o, namespace, cookie}, true, nil
		}
	}
	return link{}, false, nil
}
