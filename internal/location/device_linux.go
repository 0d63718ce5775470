package location

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

	"github.com/vishvananda/netlink"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

const loopbackFlag = net.FlagLoopback

// named is the device of that name, as target.Resolve finds it.
func named(ctx context.Context, namespace, name string) (link, error) {
	t, err := target.Resolve(ctx, target.Selector{Namespace: namespace, Device: name}, nil)
	if err != nil {
		return link{}, err
	}
	all, cookie, err := linksOf(ctx, namespace)
	if err != nil {
		return link{}, err
	}
	for _, l := range all {
		if l.Attrs().Index == t.To.Index && cookie == t.To.Cookie {
			return link{l, namespace, cookie}, nil
		}
	}
	return link{}, fmt.Errorf("device %s: %w", name, target.ErrVanished)
}

// linksOf lists the devices of a namespace, without those that netemd made beside others.
func linksOf(ctx context.Context, namespace string) ([]netlink.Link, uint64, error) {
	var all []netlink.Link
	var cookie uint64
	err := within(namespace, func(s *namespaces.Session) error {
		cookie = s.Cookie()
		h, err := s.Links(ctx)
		if err != nil {
			return err
		}
		if all, err = namespaces.Whole(h.LinkList); err != nil {
			return fmt.Errorf("list devices: %w", err)
		}
		return nil
	})
	all = slices.DeleteFunc(all, func(l netlink.Link) bool { return target.Ours(l.Attrs().Name) })
	return all, cookie, err
}

// within shares a namespace; one that is not there is said as target.Resolve says it.
func within(namespace string, f func(*namespaces.Session) error) error {
	s, err := namespaces.Share(namespace)
	if err != nil {
		return target.BadNamespace(namespace, err)
	}
	defer s.Release()
	return f(s)
}

// only is the device of a namespace that packets from elsewhere pass: the one that is named,
// or the only one that is up besides lo. Where none is up it is the only one at all.
func (f Finder) only(ctx context.Context, namespace, name string) (link, error) {
	if name != "" {
		return named(ctx, namespace, name)
	}
	all, cookie, err := linksOf(ctx, namespace)
	if err != nil {
		return link{}, err
	}
	all = slices.DeleteFunc(all, func(l netlink.Link) bool { return l.Attrs().Flags&net.FlagLoopback != 0 })
	fits := slices.DeleteFunc(slices.Clone(all), func(l netlink.Link) bool { return l.Attrs().Flags&net.FlagUp == 0 })
	if len(fits) == 0 {
		fits = all
	}
	var found []link
	var avoided []string
	for _, l := range fits {
		one := link{l, namespace, cookie}
		why, err := f.avoid(one)
		switch {
		case err != nil:
			return link{}, err
		case why != "":
			avoided = append(avoided, l.Attrs().Name+", which "+why)
		default:
			found = append(found, one)
		}
	}
	if len(found) == 1 {
		return found[0], named2(ctx, found[0])
	}
	return link{}, fault.WithHint(&qdisc.FieldError{
		Field: "device", Want: "the device of " + whose(namespace) + " that is meant, by its name: " + choices(namesOf(found), avoided),
	}, "name it: container:NAME%DEVICE, pid:N%DEVICE or netns:NAME%DEVICE, also with 'netemctl target add'; --dev DEVICE --netns NAME is the device itself, so that 'to' is what leaves there")
}

// named2 refuses a device whose packets cannot be read, as named does.
func named2(ctx context.Context, l link) error {
	_, err := named(ctx, l.namespace, l.Attrs().Name)
	return err
}

// deviceWith is the one device that has an address in a prefix.
func (f Finder) deviceWith(ctx context.Context, d target.Definition) (string, error) {
	all, cookie, err := linksOf(ctx, d.Namespace)
	if err != nil {
		return "", err
	}
	addresses := map[int][]netip.Addr{}
	err = within(d.Namespace, func(s *namespaces.Session) error {
		h, err := s.Links(ctx)
		if err != nil {
			return err
		}
		list, err := namespaces.Whole(func() ([]netlink.Addr, error) { return h.AddrList(nil, netlink.FAMILY_ALL) })
		for _, a := range list {
			if ip, ok := netip.AddrFromSlice(a.IP); ok {
				addresses[a.LinkIndex] = append(addresses[a.LinkIndex], ip.Unmap())
			}
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("list addresses: %w", err)
	}
	var fits, others, avoided []string
	for _, l := range all {
		name, has := l.Attrs().Name, addresses[l.Attrs().Index]
		if !slices.ContainsFunc(has, d.AddressIn.Contains) {
			if len(has) > 0 {
				others = append(others, fmt.Sprintf("%s (%s)", name, has[0]))
			}
			continue
		}
		why, err := f.avoid(link{l, d.Namespace, cookie})
		switch {
		case err != nil:
			return "", err
		case why != "":
			avoided = append(avoided, fmt.Sprintf("%s has one, but it %s: name it to have it", name, why))
		default:
			fits = append(fits, name)
		}
	}
	if len(fits) == 1 {
		return fits[0], nil
	}
	want := "a prefix in which one device has an address"
	switch {
	case len(fits) > 1:
		want = "a prefix in which one device alone has an address, not " + strings.Join(fits, ", ")
	case len(avoided) > 0:
		want += "; " + strings.Join(avoided, "; ")
	case len(others) > 0:
		want += ": " + strings.Join(others, ", ")
	}
	return "", &qdisc.FieldError{Field: "address_in", Value: d.AddressIn.String(), Want: want}
}

// avoid says why a device is not chosen unless it is named.
func (f Finder) avoid(l link) (string, error) {
	own, err := cookieOf("")
	if f.Avoid == nil || err != nil || l.cookie != own {
		return "", err
	}
	return f.Avoid(l.Attrs().Index)
}

// foreign refuses the agent's own namespace for what is in one of many.
func foreign(namespace, what, instead string) error {
	own, err := cookieOf("")
	if err != nil {
		return err
	}
	cookie, err := cookieOf(namespace)
	if err != nil {
		return err
	}
	if cookie != own {
		return nil
	}
	return fault.WithHint(fmt.Errorf("%s is in the network namespace of the agent, as others are: its device carries their packets, too: %w", what, errors.ErrUnsupported),
		"aim at its processes alone: "+instead)
}

// cookieOf is the cookie of a namespace; one that is gone is target.ErrVanished.
func cookieOf(namespace string) (cookie uint64, err error) {
	err = within(namespace, func(s *namespaces.Session) error {
		cookie = s.Cookie()
		return nil
	})
	return cookie, err
}

// cgroupOf is the path of a process in the hierarchy of version 2, for a hint.
func cgroupOf(pid int) string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && path != "/" {
			return path
		}
	}
	return "/PATH"
}

func namesOf(all []link) []string {
	names := make([]string, len(all))
	for i, l := range all {
		names[i] = l.Attrs().Name
	}
	slices.Sort(names)
	return names
}

func choices(names, avoided []string) string {
	if len(names) > 0 {
		avoided = append([]string{qdisc.Few(names)}, avoided...)
	}
	return cmp.Or(strings.Join(avoided, ", "), "it has none besides lo")
}

func whose(namespace string) string {
	if namespace == "" {
		return "the agent's namespace"
	}
	return "netns " + namespace
}
