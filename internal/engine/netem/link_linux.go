package netem

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/qdisc"
)

// link is a network device, as far as it matters here.
type link struct {
	index       int
	name, alias string
	// lower is the index of the device that this one stands on, 0 for none.
	lower int
	// kind is "ifb", "veth" and so on, encapsulation an ARPHRD of linux/if_arp.h.
	kind          string
	encapsulation uint16
	flags         uint32
	// xdp says that an XDP program is at the device.
	xdp bool
	// received and sent are packets.
	received, sent uint64
}

// device is l as qdisc.Conn names it.
func (l link) device() qdisc.Device { return qdisc.Device{Name: l.name, Index: l.index} }

// ourKind reports whether l is of a kind that we make.
func (l link) ourKind() bool { return l.kind == ifbKind || l.kind == macvlanKind }

func (l link) up() bool { return l.flags&unix.IFF_UP != 0 }

// header is the length of the header before IP, in bytes.
func (l link) header() (int, error) {
	switch l.encapsulation {
	case unix.ARPHRD_ETHER, unix.ARPHRD_LOOPBACK:
		return 14, nil
	case unix.ARPHRD_NONE, unix.ARPHRD_RAWIP, unix.ARPHRD_PPP, unix.ARPHRD_TUNNEL, unix.ARPHRD_TUNNEL6,
		unix.ARPHRD_SIT, unix.ARPHRD_IPGRE, unix.ARPHRD_IP6GRE:
		return 0, nil
	}
	return 0, fmt.Errorf("netem: %s is a device of type %d, whose packets nothing here can read: %w", l.name, l.encapsulation, errors.ErrUnsupported)
}

func ifinfomsg(index int) []byte {
	b := make([]byte, unix.SizeofIfInfomsg, 256)
	order.PutUint32(b[4:], uint32(int32(index)))
	return b
}

// links lists the devices of the namespace.
func (c *rtnl) links() ([]link, error) {
	replies, err := c.dump("link list", "all devices", unix.RTM_GETLINK, ifinfomsg(0))
	if err != nil {
		return nil, err
	}
	all := make([]link, 0, len(replies))
	for _, m := range replies {
		l, err := unmarshalLink(m.Data)
		if err != nil {
			return nil, fmt.Errorf("link list: %w", err)
		}
		all = append(all, l)
	}
	return all, nil
}

// link reads one device. The error is fs.ErrNotExist when it is gone.
func (c *rtnl) link(name string, index int) (link, error) {
	const op = "link read"
	replies, err := c.execute(op, name, unix.RTM_GETLINK, netlink.Request, ifinfomsg(index), nil)
	if err != nil {
		return link{}, err
	}
	if len(replies) != 1 {
		return link{}, fmt.Errorf("%s: %s: %d answers", op, name, len(replies))
	}
	return unmarshalLink(replies[0].Data)
}

func (c *rtnl) linkByName(name string) (link, error) {
	all, err := c.links()
	if err != nil {
		return link{}, err
	}
	if i := slices.IndexFunc(all, func(l link) bool { return l.name == name }); i >= 0 {
		return all[i], nil
	}
	return link{}, fmt.Errorf("link read: %s: %w", name, fs.ErrNotExist)
}

func unmarshalLink(b []byte) (link, error) {
	if len(b) < unix.SizeofIfInfomsg {
		return link{}, fmt.Errorf("link: %d bytes", len(b))
	}
	l := link{encapsulation: order.Uint16(b[2:]), index: int(int32(order.Uint32(b[4:]))), flags: order.Uint32(b[8:])}
	err := eachAttribute(b[unix.SizeofIfInfomsg:], func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			l.name = ad.String()
		case unix.IFLA_IFALIAS:
			l.alias = ad.String()
		case unix.IFLA_LINK:
			l.lower = int(int32(ad.Uint32()))
		case unix.IFLA_STATS64: // struct rtnl_link_stats64
			if v := ad.Bytes(); len(v) >= 16 {
				l.received, l.sent = order.Uint64(v), order.Uint64(v[8:])
			}
		case unix.IFLA_XDP:
			ad.Nested(func(xdp *netlink.AttributeDecoder) error {
				for xdp.Next() {
					if xdp.Type() == unix.IFLA_XDP_ATTACHED {
						l.xdp = xdp.Uint8() != 0
					}
				}
				return nil
			})
		case unix.IFLA_LINKINFO:
			ad.Nested(func(info *netlink.AttributeDecoder) error {
				for info.Next() {
					if info.Type() == unix.IFLA_INFO_KIND {
						l.kind = info.String()
					}
				}
				return nil
			})
		}
	})
	return l, err
}

// eachAttribute calls f at every attribute in b.
func eachAttribute(b []byte, f func(*netlink.AttributeDecoder)) error {
	ad, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return err
	}
	for ad.Next() {
		f(ad)
	}
	return ad.Err()
}

// ifbKind is one of the two kinds of devices that we make.
const ifbKind = "ifb"

// macvlanKind is the other; a variable for a test of kernels that have none.
var macvlanKind = "macvlan"

// silentMTU is the largest with which IPv6 leaves a device alone (below 1280, RFC
// 8200): an ifb shall send nothing of its own. What is redirected to one is not
// measured by it.
const silentMTU = 1279

// createIFB makes an ifb, which is down. The kernel takes no alias with that.
func (c *rtnl) createIFB(name string) (link, error) { return c.createLink(name, ifbKind, 0, nil) }

// Numbers of linux/if_link.h. What a macvlan of this mode sends goes to the lower
// device as it is, and nowhere else; with this flag it leaves the lower one's filter of
// addresses alone, which others would make promiscuous, with a line in the kernel's log.
const (
	macvlanMode      = 1 // IFLA_MACVLAN_MODE
	macvlanFlags     = 2 // IFLA_MACVLAN_FLAGS
	macvlanPassthru  = 8 // MACVLAN_MODE_PASSTHRU
	macvlanNoPromisc = 1 // MACVLAN_FLAG_NOPROMISC
)

// createMacvlan makes a macvlan on that lower device. It is down.
func (c *rtnl) createMacvlan(name string, lower link) (link, error) {
	return c.createLink(name, macvlanKind, lower.index, func(data *netlink.AttributeEncoder) error {
		data.Uint32(macvlanMode, macvlanPassthru)
		data.Uint16(macvlanFlags, macvlanNoPromisc)
		return nil
	})
}

func (c *rtnl) createLink(name, kind string, lower int, data func(*netlink.AttributeEncoder) error) (link, error) {
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.IFLA_IFNAME, name)
	ae.Uint32(unix.IFLA_MTU, silentMTU)
	if lower > 0 {
		ae.Uint32(unix.IFLA_LINK, uint32(lower))
	}
	ae.Nested(unix.IFLA_LINKINFO, func(info *netlink.AttributeEncoder) error {
		info.String(unix.IFLA_INFO_KIND, kind)
		if data != nil {
			info.Nested(unix.IFLA_INFO_DATA, data)
		}
		return nil
	})
	err := c.change("link add", name, unix.RTM_NEWLINK, netlink.Create|netlink.Excl, ifinfomsg(0), ae)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return link{}, fmt.Errorf("%w: this kernel has no %s, through which a device of somebody else is impaired: %w", err, kind, errors.ErrUnsupported)
	}
	if err != nil {
		return link{}, err
	}
	return c.linkByName(name)
}

// setAlias gives a device its ifalias, at most 255 bytes.
func (c *rtnl) setAlias(l link, alias string) error {
	ae := netlink.NewAttributeEncoder()
	ae.String(unix.IFLA_IFALIAS, alias)
	return c.change("link set alias", l.name, unix.RTM_SETLINK, 0, ifinfomsg(l.index), ae)
}

func (c *rtnl) setUp(l link) error {
	b := ifinfomsg(l.index)
	order.PutUint32(b[8:], unix.IFF_UP)
	order.PutUint32(b[12:], unix.IFF_UP) // the flags that change
	return c.change("link set up", l.name, unix.RTM_SETLINK, 0, b, nil)
}

// deleteLink deletes a device. One that is gone is no error.
func (c *rtnl) deleteLink(l link) error {
	return absent(c.change("link delete", l.name, unix.RTM_DELLINK, 0, ifinfomsg(l.index), nil))
}

// subject is the device of a place.
func (c *rtnl) subject(p target.Place) (link, error) { return c.link(p.Device, p.Index) }
