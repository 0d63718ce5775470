package netem

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
)

// Numbers of include/uapi/linux/pkt_sched.h and rtnetlink.h.
const (
	clsactHandle = 0xffff_0000
	clsactParent = 0xffff_fff1 // TC_H_CLSACT, TC_H_INGRESS
	hookIngress  = 0xffff_fff2 // TC_H_MAJ(TC_H_CLSACT) | TC_H_MIN_INGRESS
	hookEgress   = 0xffff_fff3

	tcmsgSize = 20 // struct tcmsg: family, interface, handle, parent, info

	attrKind         = 1  // TCA_KIND
	attrOptions      = 2  // TCA_OPTIONS
	attrChain        = 11 // TCA_CHAIN
	attrIngressBlock = 13 // TCA_INGRESS_BLOCK
	attrEgressBlock  = 14 // TCA_EGRESS_BLOCK
)

// parent is the hook of a clsact. An ingress qdisc takes that of ingress, too.
func parent(hook target.Hook) uint32 {
	if hook == target.Ingress {
		return hookIngress
	}
	return hookEgress
}

func tcmsg(index int, handle, parent, info uint32) []byte {
	b := make([]byte, 4, 512) // AF_UNSPEC
	b = order.AppendUint32(b, uint32(int32(index)))
	b = order.AppendUint32(b, handle)
	b = order.AppendUint32(b, parent)
	return order.AppendUint32(b, info)
}

// entrance is the qdisc that stands at a device's hooks: "clsact", "ingress", or none.
type entrance struct {
	kind string
	// ingressBlock and egressBlock are the blocks of filters that it shares with
	// other devices; 0 is none.
	ingressBlock, egressBlock uint32
}

// entrances reads those of all devices, by their index.
func (c *rtnl) entrances() (map[int]entrance, error) {
	replies, err := c.dump("qdisc list", "all devices", unix.RTM_GETQDISC, tcmsg(0, 0, 0, 0))
	if err != nil {
		return nil, err
	}
	all := map[int]entrance{}
	for _, m := range replies {
		b := m.Data
		if len(b) < tcmsgSize || order.Uint32(b[12:]) != clsactParent {
			continue
		}
		var e entrance
		err := eachAttribute(b[tcmsgSize:], func(ad *netlink.AttributeDecoder) {
			switch ad.Type() {
			case attrKind:
				e.kind = ad.String()
			case attrIngressBlock:
				e.ingressBlock = ad.Uint32()
			case attrEgressBlock:
				e.egressBlock = ad.Uint32()
			}
		})
		if err != nil {
			return nil, fmt.Errorf("qdisc list: %w", err)
		}
		all[int(int32(order.Uint32(b[4:])))] = e
	}
	return all, nil
}

// entrance reads that of a device.
func (c *rtnl) entrance(l link) (entrance, error) {
	all, err := c.entrances()
	return all[l.index], err
}

// check says what keeps a fault away from a hook of the device at p.
func (e entrance) check(p target.Place) error {
	block := e.egressBlock
	if p.Hook == target.Ingress {
		block = e.ingressBlock
	}
	switch {
	case block != 0:
		return &ConflictError{Place: p, Found: fmt.Sprintf("the %s has a filter block, %d, that other devices share", e.kind, block)}
	case e.kind == "" || e.kind == "clsact" || e.kind == "ingress" && p.Hook == target.Ingress:
		return nil
	}
	return &ConflictError{Place: p, Found: fmt.Sprintf("a foreign qdisc, %s ffff:, where egress needs a clsact", e.kind)}
}

// addClsact adds one where there is none: the error is fs.ErrExist otherwise.
func (c *rtnl) addClsact(l link) error {
	ae := netlink.NewAttributeEncoder()
	ae.String(attrKind, "clsact")
	return c.change("qdisc add clsact", l.name, unix.RTM_NEWQDISC, netlink.Create|netlink.Excl, tcmsg(l.index, clsactHandle, clsactParent, 0), ae)
}

func (c *rtnl) deleteClsact(l link) error {
	ae := netlink.NewAttributeEncoder()
	ae.String(attrKind, "clsact")
	return c.change("qdisc delete clsact", l.name, unix.RTM_DELQDISC, 0, tcmsg(l.index, clsactHandle, clsactParent, 0), ae)
}

// vacate deletes the device's clsact if nothing stands in it: no filter, no chain, no
// shared block.
func (c *rtnl) vacate(l link) error {
	e, err := c.entrance(l)
	if err != nil || e.kind != "clsact" || e.ingressBlock != 0 || e.egressBlock != 0 {
		return err
	}
	for _, hook := range []target.Hook{target.Ingress, target.Egress} {
		for _, typ := range []netlink.HeaderType{unix.RTM_GETTFILTER, unix.RTM_GETCHAIN} {
			found, err := c.dump("filter list", l.name, typ, tcmsg(l.index, 0, parent(hook), 0))
			if err != nil || len(found) > 0 {
				return err
			}
		}
	}
	return absent(c.deleteClsact(l))
}
