package netem

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
)

// Numbers of include/uapi/linux/pkt_cls.h and linux/tc_act/tc_mirred.h.
const (
	bpfAct, bpfFD, bpfName, bpfFlags, bpfFlagsGen, bpfID = 1, 6, 7, 8, 9, 11 // TCA_BPF_*
	directAction                                         = 1                 // TCA_BPF_FLAG_ACT_DIRECT
	skipHardware                                         = 1                 // TCA_CLS_FLAGS_SKIP_HW

	actKind, actOptions, actStats, actCookie = 1, 2, 4, 6 // TCA_ACT_*
	mirredParms                              = 2          // TCA_MIRRED_PARMS
	mirredSize                               = 28         // struct tc_mirred
	egressRedirect                           = 1          // TCA_EGRESS_REDIR
	stolen                                   = 4          // TC_ACT_STOLEN

	statsBasic, statsPackets64 = 1, 8 // TCA_STATS_*
)

// filterHandle is the handle of our first filter at a hook, "NE" in ASCII as in that
// of our qdiscs; others count on.
const filterHandle uint32 = 0x4e45_0001

// filter is a filter as it stands at a hook. Of a foreign one only the first group
// is known.
type filter struct {
	// parent is the hook, in the words of whoever added a filter there last: an ingress
	// qdisc has several names for its one, and shows all filters under the last.
	parent     uint32
	preference uint16
	protocol   uint16 // an ETH_P of linux/if_ether.h
	chain      uint32
	kind       string
	handle     uint32 // 0 for the head of the list at one preference

	// name and cookie are ours to give. program is the number of the BPF program, to
	// the device where the selected packets go; 0 when the program itself decides.
	name, cookie string
	program      uint32
	to           int
	// redirects says that the action is the one that we gave.
	redirects bool
	// packets that were selected, a super-packet as its segments.
	packets uint64
}

func (f filter) String() string { return fmt.Sprintf("%s with preference %d", f.kind, f.preference) }

// foreign reports that somebody else made it. The head of a list is nobody's.
func (f filter) foreign() bool { return f.handle != 0 && !f.ours() }

func (f filter) ours() bool {
	return f.kind == "bpf" && f.handle&0xffff_0000 == filterHandle&0xffff_0000 && len(f.cookie) == len(namePrefix)+11 && f.cookie[:len(namePrefix)] == namePrefix
}

// filters lists what stands at a hook of a device, in all chains.
func (c *rtnl) filters(l link, hook target.Hook) ([]filter, error) {
	const op = "filter list"
	replies, err := c.dump(op, l.name, unix.RTM_GETTFILTER, tcmsg(l.index, 0, parent(hook), 0))
	if err != nil {
		return nil, err
	}
	all := make([]filter, 0, len(replies))
	for _, m := range replies {
		f, err := unmarshalFilter(m.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", op, l.name, err)
		}
		all = append(all, f)
	}
	return all, nil
}

func unmarshalFilter(b []byte) (filter, error) {
	if len(b) < tcmsgSize {
		return filter{}, fmt.Errorf("filter: %d bytes", len(b))
	}
	info := order.Uint32(b[16:])
	f := filter{handle: order.Uint32(b[8:]), parent: order.Uint32(b[12:]), preference: uint16(info >> 16), protocol: ntohs(uint16(info))}
	var options []byte
	err := eachAttribute(b[tcmsgSize:], func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case attrKind:
			f.kind = ad.String()
		case attrChain:
			f.chain = ad.Uint32()
		case attrOptions:
			options = ad.Bytes()
		}
	})
	if err != nil || f.kind != "bpf" {
		return f, err
	}
	return f, eachAttribute(options, func(ad *netlink.AttributeDecoder) {
		switch ad.Type() {
		case bpfName:
			f.name = ad.String()
		case bpfID:
			f.program = ad.Uint32()
		case bpfAct:
			ad.Nested(func(list *netlink.AttributeDecoder) error {
				for list.Next() {
					list.Nested(func(a *netlink.AttributeDecoder) error { f.action(a); return nil })
				}
				return nil
			})
		}
	})
}

// action reads what a filter does. More than one action is not ours.
func (f *filter) action(ad *netlink.AttributeDecoder) {
	more := f.to != 0
	f.redirects = false
	for ad.Next() {
		switch ad.Type() {
		case actCookie:
			f.cookie = string(ad.Bytes())
		case actOptions:
			ad.Nested(func(o *netlink.AttributeDecoder) error {
				for o.Next() {
					if b := o.Bytes(); o.Type() == mirredParms && len(b) >= mirredSize {
						f.redirects = !more && order.Uint32(b[8:]) == stolen && order.Uint32(b[20:]) == egressRedirect
						f.to = int(int32(order.Uint32(b[24:])))
					}
				}
				return nil
			})
		case actStats:
			ad.Nested(func(s *netlink.AttributeDecoder) error {
				for s.Next() {
					switch b := s.Bytes(); {
					case s.Type() == statsBasic && len(b) >= 12:
						f.packets = max(f.packets, uint64(order.Uint32(b[8:])))
					case s.Type() == statsPackets64 && len(b) >= 8:
						f.packets = order.Uint64(b)
					}
				}
				return nil
			})
		}
	}
}

// addFilter adds f, which runs the program with that descriptor. The error is
// fs.ErrExist when there is one with its preference and handle.
func (c *rtnl) addFilter(l link, f filter, fd int) error {
	return c.setFilter("filter add", netlink.Create|netlink.Excl, l, f, fd)
}

// replaceFilter makes f of the one with its preference and handle, in one step: each
// packet meets either.
func (c *rtnl) replaceFilter(l link, f filter, fd int) error {
	return c.setFilter("filter replace", netlink.Create, l, f, fd)
}

func (c *rtnl) setFilter(op string, flags netlink.HeaderFlags, l link, f filter, fd int) error {
	parms := make([]byte, mirredSize)
	order.PutUint32(parms[8:], stolen)
	order.PutUint32(parms[20:], egressRedirect)
	order.PutUint32(parms[24:], uint32(f.to))
	ae := netlink.NewAttributeEncoder()
	ae.String(attrKind, "bpf")
	ae.Nested(attrOptions, func(o *netlink.AttributeEncoder) error {
		o.Uint32(bpfFD, uint32(fd))
		o.String(bpfName, f.name)
		o.Uint32(bpfFlagsGen, skipHardware)
		if f.to == 0 {
			o.Uint32(bpfFlags, directAction)
			return nil
		}
		o.Nested(bpfAct, func(list *netlink.AttributeEncoder) error {
			list.Nested(1, func(a *netlink.AttributeEncoder) error {
				a.String(actKind, "mirred")
				a.Bytes(actCookie, []byte(f.cookie))
				a.Nested(actOptions, func(m *netlink.AttributeEncoder) error {
					m.Bytes(mirredParms, parms)
					return nil
				})
				return nil
			})
			return nil
		})
		return nil
	})
	return c.change(op, l.name, unix.RTM_NEWTFILTER, flags, f.header(l), ae)
}

// deleteFilter deletes f. One that is gone is no error.
func (c *rtnl) deleteFilter(l link, f filter) error {
	ae := netlink.NewAttributeEncoder()
	ae.String(attrKind, f.kind)
	ae.Uint32(attrChain, f.chain)
	return absent(c.change("filter delete", l.name, unix.RTM_DELTFILTER, 0, f.header(l), ae))
}

func (f filter) header(l link) []byte {
	return tcmsg(l.index, f.handle, f.parent, uint32(f.preference)<<16|uint32(ntohs(f.protocol)))
}

// ntohs swaps between the packet's order and the machine's, either way.
func ntohs(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return order.Uint16(b[:])
}

// position finds a place for a new filter of ours at a hook where all stand: before everything
// that somebody else has at the hook, since a verdict there would end the packet's
// way. ahead is what is before it all the same.
func position(all []filter, hook target.Hook) (f filter, ahead []filter) {
	f = filter{kind: "bpf", protocol: unix.ETH_P_ALL, handle: filterHandle, preference: 1, parent: parent(hook)}
	if len(all) > 0 {
		f.parent = all[0].parent
	}
	taken := map[uint16]bool{}
	for _, o := range all {
		if o.handle >= f.handle && o.handle < filterHandle+0xfff0 {
			f.handle = o.handle + 1 // somebody else may have it too
		}
		// A list of our own kind is one that we can be in: a new filter is its first.
		if o.chain == 0 && (o.kind != f.kind || o.protocol != f.protocol) {
			taken[o.preference] = true
		}
	}
	for taken[f.preference] && f.preference < 0xffff {
		f.preference++
	}
	for _, o := range all {
		if o.chain == 0 && o.foreign() && o.preference < f.preference {
			ahead = append(ahead, o)
		}
	}
	return f, ahead
}

// find returns our filter with that cookie.
func find(all []filter, cookie string) (filter, error) {
	i := slices.IndexFunc(all, func(f filter) bool { return f.ours() && f.cookie == cookie })
	if i < 0 {
		return filter{}, fmt.Errorf("filter to %s: %w", cookie, fs.ErrNotExist)
	}
	return all[i], nil
}
