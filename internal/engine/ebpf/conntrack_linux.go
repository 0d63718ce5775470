package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Numbers of linux/netfilter/nfnetlink_conntrack.h.
const (
	conntrackGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET

	conntrackOriginal = 1 // CTA_TUPLE_ORIG
	conntrackReply    = 2 // CTA_TUPLE_REPLY
	tupleAddresses    = 1 // CTA_TUPLE_IP
	tupleProtocol     = 2 // CTA_TUPLE_PROTO
	source4           = 1 // CTA_IP_V4_SRC, followed by the destination
	source6           = 3 // CTA_IP_V6_SRC, followed by the destination
	protocolNumber    = 1 // CTA_PROTO_NUM
	protocolSource    = 2 // CTA_PROTO_SRC_PORT
	protocolTarget    = 3 // CTA_PROTO_DST_PORT
)

const (
	// flowsKnown bounds how many flows are remembered, and flowKnown how long, so that a
	// packet seldom costs a question to the kernel.
	flowsKnown = 4096
	flowKnown  = time.Second
)

// flowKey is where a packet of TCP or UDP comes from and goes to.
type flowKey struct {
	protocol            uint8
	source, destination netip.AddrPort
}

func (k flowKey) back() flowKey { return flowKey{k.protocol, k.destination, k.source} }

// conntrack knows what netfilter makes of a packet's addresses and ports between its
// sender and a device's egress: sent once more with those that it came with, the packet
// would be one of another flow to netfilter.
type conntrack struct {
	// num is a socket of netlink. The kernel answers within the system call that asks, and
	// the queue's thread must not wait, so no library's connection will do.
	num   int
	known map[flowKey]known
	buf   [4096]byte
}

type known struct {
	as   flowKey
	till int64
}

// newConntrack opens it in the calling thread's namespace. The error is
// errors.ErrUnsupported when flows are tracked and the kernel does not tell how.
func newConntrack() (*conntrack, error) {
	num, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netfilter's netlink: %w", err)
	}
	t := &conntrack{num: num, known: map[flowKey]known{}}
	// Any answer will do but that nobody is there.
	if tracking() {
		local := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0)
		if _, err := t.ask(flowKey{unix.IPPROTO_UDP, local, local}); err != nil {
			return nil, errors.Join(fmt.Errorf("everything but loss on loopback where netfilter tracks flows and does not tell "+
				"how (module nf_conntrack_netlink), since translated ones would be cut off: %w (%w)", errors.ErrUnsupported, err), t.close())
		}
	}
	return t, nil
}

// tracking reports whether the kernel can track flows. Asking netfilter itself would load
// the module.
func tracking() bool {
	_, err := os.Stat("/proc/sys/net/netfilter/nf_conntrack_max")
	return !errors.Is(err, fs.ErrNotExist)
}

// before returns the flow that a packet had when its sender sent it, before addresses and
// ports were translated. It is that of k where nothing is.
func (t *conntrack) before(k flowKey) (flowKey, error) {
	at := now()
	if v, ok := t.known[k]; ok && at < v.till {
		return v.as, nil
	}
	as := k
	if tracking() {
		var err error
		if as, err = t.ask(k); err != nil {
			return k, err
		}
	}
	if len(t.known) >= flowsKnown {
		clear(t.known)
	}
	t.known[k] = known{as, at + int64(flowKnown)}
	return as, nil
}

// ask asks the kernel. A packet leaves as the answer to its flow's other direction, which
// is a tuple of the table whether it is translated or not; what the sender sent is the
// tuple of its own direction.
func (t *conntrack) ask(k flowKey) (flowKey, error) {
	family := byte(unix.AF_INET)
	if k.source.Addr().Is6() {
		family = unix.AF_INET6
	}
	ae := netlink.NewAttributeEncoder()
	ae.Nested(conntrackOriginal, k.back().encode)
	b, err := ae.Encode()
	if err != nil {
		return k, err
	}
	m, err := t.exchange(append([]byte{family, 0, 0, 0}, b...)) // struct nfgenmsg
	if errors.Is(err, fs.ErrNotExist) {
		return k, nil
	}
	if err != nil {
		return k, fmt.Errorf("ask netfilter for a flow: %w", err)
	}
	var original, reply flowKey
	ad, err := netlink.NewAttributeDecoder(m)
	if err != nil {
		return k, fmt.Errorf("netfilter's answer: %w", err)
	}
	for ad.Next() {
		switch ad.Type() {
		case conntrackOriginal:
			ad.Nested(original.decode)
		case conntrackReply:
			ad.Nested(reply.decode)
		}
	}
	if err := ad.Err(); err != nil {
		return k, fmt.Errorf("netfilter's answer: %w", err)
	}
	if reply == k.back() {
		return original, nil
	}
	return reply, nil
}

// exchange sends a question and returns the answer's attributes.
func (t *conntrack) exchange(data []byte) ([]byte, error) {
	q, err := netlink.Message{
		Header: netlink.Header{Length: uint32(unix.SizeofNlMsghdr + len(data)), Type: conntrackGet, Flags: netlink.Request},
		Data:   data,
	}.MarshalBinary()
	if err != nil {
		return nil, err
	}
	if err := unix.Sendto(t.num, q, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	n, _, err := unix.Recvfrom(t.num, t.buf[:], unix.MSG_DONTWAIT)
	if err != nil {
		return nil, fmt.Errorf("no answer: %w", err)
	}
	b := t.buf[:n]
	if n < unix.SizeofNlMsghdr+4 {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR {
		if errno := -int32(binary.NativeEndian.Uint32(b[unix.SizeofNlMsghdr:])); errno != 0 {
			return nil, unix.Errno(errno)
		}
		return nil, unix.EBADMSG
	}
	return b[unix.SizeofNlMsghdr+4:], nil // behind struct nfgenmsg
}

func (k flowKey) encode(ae *netlink.AttributeEncoder) error {
	first := uint16(source4)
	if k.source.Addr().Is6() {
		first = source6
	}
	ae.Nested(tupleAddresses, func(ae *netlink.AttributeEncoder) error {
		ae.Bytes(first, k.source.Addr().AsSlice())
		ae.Bytes(first+1, k.destination.Addr().AsSlice())
		return nil
	})
	ae.Nested(tupleProtocol, func(ae *netlink.AttributeEncoder) error {
		ae.Uint8(protocolNumber, k.protocol)
		ae.Bytes(protocolSource, binary.BigEndian.AppendUint16(nil, k.source.Port()))
		ae.Bytes(protocolTarget, binary.BigEndian.AppendUint16(nil, k.destination.Port()))
		return nil
	})
	return nil
}

func (k *flowKey) decode(ad *netlink.AttributeDecoder) error {
	var (
		addresses [2]netip.Addr
		ports     [2]uint16
	)
	for ad.Next() {
		inner := ad.Type()
		ad.Nested(func(ad *netlink.AttributeDecoder) error {
			for ad.Next() {
				switch b := ad.Bytes(); {
				case inner == tupleAddresses && ad.Type() >= source4 && ad.Type() <= source6+1:
					a, ok := netip.AddrFromSlice(b)
					if !ok {
						return fmt.Errorf("an address of %d bytes", len(b))
					}
					addresses[(ad.Type()-1)%2] = a
				case inner == tupleProtocol && ad.Type() == protocolNumber && len(b) == 1:
					k.protocol = b[0]
				case inner == tupleProtocol && (ad.Type() == protocolSource || ad.Type() == protocolTarget) && len(b) == 2:
					ports[ad.Type()-protocolSource] = binary.BigEndian.Uint16(b)
				}
			}
			return nil
		})
	}
	k.source, k.destination = netip.AddrPortFrom(addresses[0], ports[0]), netip.AddrPortFrom(addresses[1], ports[1])
	return nil
}

func (t *conntrack) close() error { return unix.Close(t.num) }
