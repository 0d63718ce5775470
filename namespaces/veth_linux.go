package namespaces

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// CreateVeth makes a veth pair with its ends in their namespaces from the start, so
// that neither is ever seen elsewhere; then it sets the addresses and both ends up.
// When it fails there is no pair. The error is fs.ErrExist when a name is taken.
func CreateVeth(a, b VethEnd) error {
	if err := errors.Join(a.check(), b.check()); err != nil {
		return fmt.Errorf("veth create: %w", err)
	}
	if err := createVeth(a, b); err != nil {
		return fmt.Errorf("veth create: %s in %s, %s in %s: %w", a.Name, label(a.Namespace), b.Name, label(b.Namespace), err)
	}
	return nil
}

func createVeth(a, b VethEnd) (err error) {
	nsB, err := Open(b.Namespace)
	if err != nil {
		return err
	}
	defer func() { _ = nsB.Close() }()
	ha, err := handle(a.Namespace)
	if err != nil {
		return err
	}
	defer ha.Close()
	hb, err := handle(b.Namespace)
	if err != nil {
		return err
	}
	defer hb.Close()

	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = a.Name, a.HardwareAddress
	err = ha.LinkAdd(&netlink.Veth{
		LinkAttrs: attrs, PeerName: b.Name, PeerHardwareAddr: b.HardwareAddress,
		PeerNamespace: netlink.NsFd(nsB.FD()), PeerTxQLen: -1,
	})
	if err != nil {
		return err
	}
	if err = errors.Join(configure(ha, a), configure(hb, b)); err != nil {
		if link, lerr := ha.LinkByName(a.Name); lerr == nil {
			err = errors.Join(err, ha.LinkDel(link))
		}
	}
	return err
}

// handle returns an rtnetlink handle whose socket is in the namespace.
func handle(name string) (h *netlink.Handle, err error) {
	err = Do(context.Background(), name, func() error {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	return h, err
}

func configure(h *netlink.Handle, e VethEnd) error {
	link, err := h.LinkByName(e.Name)
	if err != nil {
		return fmt.Errorf("device %s: %w", e.Name, err)
	}
	if e.Alias != "" {
		if err := h.LinkSetAlias(link, e.Alias); err != nil {
			return fmt.Errorf("alias of %s: %w", e.Name, err)
		}
	}
	for _, p := range e.Addresses {
		addr := &netlink.Addr{IPNet: &net.IPNet{
			IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen()),
		}}
		if p.Addr().Is6() {
			addr.Flags |= unix.IFA_F_NODAD
		}
		if e.NoPrefixRoute {
			addr.Flags |= unix.IFA_F_NOPREFIXROUTE
		}
		if err := h.AddrAdd(link, addr); err != nil {
			return fmt.Errorf("address %s of %s: %w", p, e.Name, err)
		}
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up: %w", e.Name, err)
	}
	return nil
}
