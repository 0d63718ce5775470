package ebpf

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/cilium/ebpf"
	netlinkconn "github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nlenc"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"netemd/internal/failpoint"
	"netemd/internal/target"
	"netemd/namespaces"
)

// A clsact carries no mark of who made it; its filters do. So one of ours never stands
// without a filter of ours, not even for a moment in which this process may be killed: both
// come in one system call, which a signal does not cut, and the last filter goes with it.

// open adds a clsact to a device that has none, with its first filter. It returns nil, and no
// error, where there is one already.
func (a *attacher) open(at clsact, hook target.Hook, prog *ebpf.Program) (*netlink.BpfFilter, error) {
	if there, err := hasClsact(at.index); there || err != nil {
		return nil, err
	}
	f := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: at.index, Parent: parent(hook), Handle: filterHandle, Protocol: unix.ETH_P_ALL, Priority: 1,
		},
		Fd: prog.FD(), Name: ownFilter() + "-" + filterMade, DirectAction: true,
	}
	clsact, filter, err := addBoth(f)
	switch {
	case err != nil:
		return nil, err
	case errors.Is(clsact, fs.ErrExist): // somebody was faster, and it is his
		if filter == nil {
			return nil, netlink.FilterDel(f)
		}
		return nil, nil
	case clsact != nil:
		return nil, fmt.Errorf("add clsact: %w", clsact)
	}
	a.made[at] = true
	if filter != nil {
		return nil, errors.Join(fmt.Errorf("add cls_bpf filter: %w", filter), a.release(at))
	}
	failpoint.At("ebpf.clsact.added")
	return f, nil
}

// addBoth adds a clsact and f in it by one sendmsg(2), and returns what became of each.
func addBoth(f *netlink.BpfFilter) (clsact, filter, err error) {
	c, err := netlinkconn.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("netlink: %w", err)
	}
	defer func() { _ = c.Close() }()
	// Numbers of linux/pkt_cls.h and rtnetlink.h.
	const attrKind, attrOptions, bpfFD, bpfName, bpfFlags, directAction = 1, 2, 6, 7, 8, 1
	qdisc, first := netlinkconn.NewAttributeEncoder(), netlinkconn.NewAttributeEncoder()
	qdisc.String(attrKind, "clsact")
	first.String(attrKind, "bpf")
	first.Nested(attrOptions, func(o *netlinkconn.AttributeEncoder) error {
		o.Uint32(bpfFD, uint32(f.Fd))
		o.String(bpfName, f.Name)
		o.Uint32(bpfFlags, directAction)
		return nil
	})
	protocol := uint32(nl.Swap16(f.Protocol)) // as in the packet
	var messages []netlinkconn.Message
	for _, m := range []struct {
		kind                 netlinkconn.HeaderType
		handle, parent, info uint32
		attributes           *netlinkconn.AttributeEncoder
	}{
		{unix.RTM_NEWQDISC, netlink.MakeHandle(0xffff, 0), netlink.HANDLE_CLSACT, 0, qdisc},
		{unix.RTM_NEWTFILTER, f.Handle, f.Parent, uint32(f.Priority)<<16 | protocol, first},
	} {
		attributes, err := m.attributes.Encode()
		if err != nil {
			return nil, nil, fmt.Errorf("netlink: %w", err)
		}
		data := make([]byte, 4, 128) // AF_UNSPEC
		for _, n := range []uint32{uint32(f.LinkIndex), m.handle, m.parent, m.info} {
			data = append(data, nlenc.Uint32Bytes(n)...)
		}
		messages = append(messages, netlinkconn.Message{
			Header: netlinkconn.Header{Type: m.kind, Flags: netlinkconn.Request | netlinkconn.Acknowledge | netlinkconn.Create | netlinkconn.Excl},
			Data:   append(data, attributes...),
		})
	}
	if _, err := c.SendMessages(messages); err != nil {
		return nil, nil, fmt.Errorf("netlink: %w", err)
	}
	_, clsact = c.Receive()
	_, filter = c.Receive()
	return clsact, filter, nil
}

// last reports whether f is all that stands in a clsact of ours.
func (a *attacher) last(at clsact, f *netlink.BpfFilter) (bool, error) {
	found := 0
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		all, err := filters(at.index, hook)
		if err != nil {
			return false, err
		}
		found += len(all)
		for _, o := range all {
			b, ok := o.(*netlink.BpfFilter)
			if !ok || hook != hookOf(f.Parent) || b.Handle != f.Handle || b.Name != f.Name {
				return false, nil
			}
		}
	}
	return a.made[at] && found == 1, nil
}

// release deletes the clsact if it is ours and carries nothing.
func (a *attacher) release(at clsact) error {
	if !a.made[at] {
		return nil
	}
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		if all, err := filters(at.index, hook); err != nil || len(all) > 0 {
			return err
		}
	}
	return a.close(at)
}

// close deletes a clsact of ours with what is in it.
func (a *attacher) close(at clsact) error {
	delete(a.made, at)
	err := deleteClsact(at.index)
	failpoint.At("ebpf.clsact.gone")
	return err
}

func deleteClsact(index int) error {
	err := netlink.QdiscDel(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0),
	}})
	if err != nil && !gone(err) && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete clsact: %w", err)
	}
	return nil
}

func hasClsact(index int) (bool, error) {
	stub := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}
	all, err := namespaces.Whole(func() ([]netlink.Qdisc, error) { return netlink.QdiscList(stub) })
	if err != nil {
		return false, fmt.Errorf("list qdiscs: %w", err)
	}
	for _, q := range all {
		if q.Type() == "clsact" {
			return true, nil
		}
	}
	return false, nil
}
