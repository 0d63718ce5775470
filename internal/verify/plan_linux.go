package verify

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/namespaces"
)

// reserved is the destination of packets that shall end at the other end of a cable:
// bridges never forward it, whatever their settings (BR_GROUPFWD_RESTRICTED of
// net/bridge/br_private.h; IEEE 802.1Q, table 8-1), and an IP stack neither answers
// nor forwards what comes with a multicast address (pkt_type in ip_forward, icmp_send
// and tcp_v4_rcv).
var reserved = net.HardwareAddr{0x01, 0x80, 0xc2, 0, 0, 0x02}

// Where a flow leaves an address open and the device has none: TEST-NET-1 (RFC 5737)
// and the prefix for documentation (RFC 3849).
var documentation = ends{
	from: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
	to:   []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")},
}

// impossibleError says why nothing can be measured at a place.
type impossibleError struct{ reason string }

func (e *impossibleError) Error() string { return e.reason }

func impossible(format string, args ...any) error {
	return &impossibleError{fmt.Sprintf(format, args...)}
}

// plan is how packets get through a place and are seen behind it.
type plan struct {
	flow flow
	// sender is the namespace in which packets start; device is what they are sent out
	// of, 0 to have them routed, and header what is put before them.
	sender string
	device int
	header []byte
	view   view
	// mtu bounds the size of the packets.
	mtu int
	// words say both ends in one phrase.
	words string
}

// planFor finds the way to a path's place. The error is an impossibleError when there
// is none that leaves everything else alone, and fs.ErrNotExist when the place is gone.
func planFor(ctx context.Context, p Path, o Options) (plan, error) {
	if err := sameNamespace(p.Place); err != nil {
		return plan{}, err
	}
	if p.Between != nil {
		pl, err := between(ctx, p)
		if !errors.Is(err, errNoFlow) {
			return pl, err
		}
	}
	d, err := deviceAt(ctx, p.Place.Namespace, p.Place.Index)
	if err != nil {
		return plan{}, err
	}
	if p.Place.Hook == target.Ingress && !d.loopback {
		return intoIngress(ctx, p, d)
	}
	return outOfEgress(p, d, o)
}

// check refuses a path whose packets are too small.
func (pl plan) check() error {
	if least := minSize(pl.flow); pl.mtu < least {
		return impossible("the path takes packets of up to %d bytes, fewer than the %d needed", pl.mtu, least)
	}
	return nil
}

// sameNamespace reports fs.ErrNotExist when the namespace's name stands for another
// one than the place means.
func sameNamespace(p target.Place) error {
	if p.Index <= 0 {
		return fmt.Errorf("%s: %w", p, fs.ErrNotExist)
	}
	if p.Cookie == 0 {
		return nil
	}
	ns, err := namespaces.Open(p.Namespace)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	cookie, err := ns.Cookie()
	if err == nil && cookie != p.Cookie {
		err = fmt.Errorf("%s: the namespace was made anew: %w", p, fs.ErrNotExist)
	}
	return err
}

// between plans a path from one namespace to another. The error is errNoFlow when
// its packets would be answered there.
func between(ctx context.Context, p Path) (plan, error) {
	b := p.Between
	var d device
	err := inside(ctx, b.Receiver, func(h *netlink.Handle) error {
		link, err := h.LinkByName(b.Device)
		if err == nil {
			d, err = describe(h, b.Receiver, link)
		}
		return err
	})
	if err != nil {
		return plan{}, fmt.Errorf("device %s: %w", b.Device, err)
	}
	open := ends{to: d.addresses}
	for _, to := range d.addresses {
		if from, err := sourceFor(ctx, b.Sender, to); err == nil {
			open.from = append(open.from, from)
		}
	}
	f, err := flowFor(p.Place.Match, open)
	if err != nil {
		return plan{}, err
	}
	// What the receiver does not know it answers with an ICMP message.
	if !slices.Contains([]uint8{protoTCP, protoUDP, protoICMP, protoICMPv6}, f.protocol) {
		return plan{}, errNoFlow
	}
	return plan{
		flow: f, sender: b.Sender, mtu: d.mtu,
		view:  view{namespace: b.Receiver, index: d.index, header: d.header},
		words: fmt.Sprintf("sent in %s, captured on %s in %s", label(b.Sender), b.Device, label(b.Receiver)),
	}, nil
}

// outOfEgress sends out of the place's device and looks at what leaves it, which is
// behind the egress hook and the qdisc (dev_queue_xmit_nit in net/core/dev.c).
func outOfEgress(p Path, d device, o Options) (plan, error) {
	if d.external() && !o.AllowExternal {
		return plan{}, impossible("packets that leave %s (%s) may leave this host, which they are not allowed to", d.name, d.kind)
	}
	f, err := flowFor(p.Place.Match, ends{append(d.addresses, documentation.from...), documentation.to})
	if err != nil {
		return plan{}, impossible("%v", err)
	}
	return plan{
		flow: f, sender: d.namespace, device: d.index, header: d.linkHeader(f), mtu: d.mtu,
		view:  view{namespace: d.namespace, index: d.index, header: d.header, outgoing: true},
		words: fmt.Sprintf("sent out of %s in %s, captured as it leaves", d.name, label(d.namespace)),
	}, nil
}

// intoIngress sends out of the other end of a veth pair.
func intoIngress(ctx context.Context, p Path, d device) (plan, error) {
	if d.kind != "veth" {
		return plan{}, impossible("nothing on this host can send to %s (%s): only a veth's other end could", d.name, d.kind)
	}
	peer, err := peerOf(ctx, d)
	if err != nil {
		return plan{}, err
	}
	f, err := flowFor(p.Place.Match, ends{append(peer.addresses, documentation.from...), append(d.addresses, documentation.to...)})
	if err != nil {
		return plan{}, impossible("%v", err)
	}
	return plan{
		flow: f, sender: peer.namespace, device: peer.index, header: peer.linkHeader(f), mtu: min(d.mtu, peer.mtu),
		// A socket for one EtherType comes after the ingress hook, one for all before it
		// (__netif_receive_skb_core in net/core/dev.c).
		view:  view{namespace: d.namespace, index: d.index, header: d.header, after: true},
		words: fmt.Sprintf("sent out of %s in %s, captured behind the ingress of %s in %s", peer.name, label(peer.namespace), d.name, label(d.namespace)),
	}, nil
}

// device is what matters of one.
type device struct {
	namespace, name, kind string
	index, mtu, header    int
	loopback              bool
	mac                   net.HardwareAddr
	addresses             []netip.Addr
	// peer and peerSpace are a veth's other end: its index, and the number that d's
	// namespace has for the other one, -1 for itself.
	peer, peerSpace int
}

// external reports whether packets that leave the device may leave the host.
func (d device) external() bool {
	return !d.loopback && d.kind != "veth" && d.kind != "dummy" && (d.kind != "tuntap" || d.header == 0)
}

func (d device) linkHeader(f flow) []byte {
	if d.header == 0 {
		return nil
	}
	h := make([]byte, linkHeader)
	copy(h, reserved)
	copy(h[6:], d.mac)
	binary.BigEndian.PutUint16(h[12:], uint16(etherType(f)))
	return h
}

func deviceAt(ctx context.Context, namespace string, index int) (device, error) {
	var d device
	err := inside(ctx, namespace, func(h *netlink.Handle) error {
		link, err := h.LinkByIndex(index)
		if err == nil {
			d, err = describe(h, namespace, link)
		}
		return err
	})
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		err = fmt.Errorf("device %d in %s: %w", index, label(namespace), fs.ErrNotExist)
	}
	return d, err
}

func describe(h *netlink.Handle, namespace string, link netlink.Link) (device, error) {
	a := link.Attrs()
	d := device{
		namespace: namespace, name: a.Name, kind: link.Type(), index: a.Index, mtu: a.MTU, mac: a.HardwareAddr,
		loopback: a.Flags&net.FlagLoopback != 0, peer: a.ParentIndex, peerSpace: a.NetNsID,
	}
	// Others carry bare IP: what does not is refused before a fault is placed there, by
	// the engines or target.Resolve.
	switch a.EncapType {
	case "ether", "loopback":
		d.header = linkHeader
	}
	if a.Flags&net.FlagUp == 0 {
		return d, impossible("%s in %s is down", d.name, label(namespace))
	}
	addrs, err := namespaces.Whole(func() ([]netlink.Addr, error) { return h.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return d, fmt.Errorf("addresses of %s: %w", d.name, err)
	}
	for _, addr := range addrs {
		if ip, ok := netip.AddrFromSlice(addr.IP); ok && !ip.Unmap().IsLinkLocalUnicast() {
			d.addresses = append(d.addresses, ip.Unmap())
		}
	}
	return d, nil
}

// peerOf finds a veth's other end among the named namespaces and the agent's own, by
// the kernel's number of the namespace and the index of the device.
func peerOf(ctx context.Context, d device) (device, error) {
	names := []string{""}
	entries, err := namespaces.List()
	if err != nil {
		return device{}, err
	}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	if d.peerSpace < 0 {
		names = []string{d.namespace}
	}
	for _, name := range names {
		if d.peerSpace >= 0 {
			id, err := numberOf(ctx, d.namespace, name)
			if err != nil || id != d.peerSpace {
				continue // one that ended meanwhile, or has no number there
			}
		}
		return deviceAt(ctx, name, d.peer)
	}
	return device{}, impossible("the other end of %s is in a namespace without a name", d.name)
}

// numberOf is the number that the namespace from has for the namespace name.
func numberOf(ctx context.Context, from, name string) (int, error) {
	ns, err := namespaces.Open(name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = ns.Close() }()
	var id int
	err = inside(ctx, from, func(h *netlink.Handle) error {
		id, err = h.GetNetNsIdByFd(ns.FD())
		return err
	})
	return id, err
}

// inside calls f with an rtnetlink handle in the namespace.
func inside(ctx context.Context, namespace string, f func(*netlink.Handle) error) error {
	return namespaces.Do(ctx, namespace, func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		return f(h)
	})
}

func label(namespace string) string {
	if namespace == "" {
		return "the agent's namespace"
	}
	return namespace
}
