package ebpf

import (
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Parts of linux/if_link.h and linux/rtnetlink.h (RTM_GETSTATS, since Linux 4.7).
const (
	ifStatsMsg    = 12 // struct if_stats_msg: family, padding, index, what is asked for
	statsLink64   = 1  // IFLA_STATS_LINK_64
	filterLink64  = 1 << (statsLink64 - 1)
	atTxDropped   = 7 * 8 // in struct rtnl_link_stats64
	maxStatsReply = 4096
)

// deviceCounters asks for those of devices of one namespace. A link's whole state, which libraries
// ask for, takes five times as long, and is read and taken apart at each look at a fault.
type deviceCounters struct {
	mu  sync.Mutex
	fd  int
	seq uint32
	buf [maxStatsReply]byte
}

// newDeviceCounters opens a connection in the calling thread's namespace.
func newDeviceCounters() (*deviceCounters, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("rtnetlink dial: %w", err)
	}
	return &deviceCounters{fd: fd}, nil
}

func (c *deviceCounters) close() error { return unix.Close(c.fd) }

// txDropped is how many packets the device refused to send.
func (c *deviceCounters) txDropped(index int) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seq++
	ask := c.buf[:unix.NLMSG_HDRLEN+ifStatsMsg]
	clear(ask)
	order := binary.NativeEndian
	order.PutUint32(ask, uint32(len(ask)))
	order.PutUint16(ask[4:], unix.RTM_GETSTATS)
	order.PutUint16(ask[6:], unix.NLM_F_REQUEST)
	order.PutUint32(ask[8:], c.seq)
	order.PutUint32(ask[unix.NLMSG_HDRLEN+4:], uint32(index))
	order.PutUint32(ask[unix.NLMSG_HDRLEN+8:], filterLink64)
	if err := unix.Sendto(c.fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, fmt.Errorf("rtnetlink send: %w", err)
	}
	for {
		// The kernel answers before the request returns; what is late is of one before.
		n, _, err := unix.Recvfrom(c.fd, c.buf[:], unix.MSG_DONTWAIT)
		if err != nil {
			return 0, fmt.Errorf("rtnetlink receive: %w", err)
		}
		if b := c.buf[:n]; n >= unix.NLMSG_HDRLEN+4 && order.Uint32(b[8:]) == c.seq {
			return parseTxDropped(b)
		}
	}
}

// parseTxDropped reads the answer, one message.
func parseTxDropped(b []byte) (uint64, error) {
	order := binary.NativeEndian
	if order.Uint16(b[4:]) == unix.NLMSG_ERROR {
		return 0, unix.Errno(-int32(order.Uint32(b[unix.NLMSG_HDRLEN:])))
	}
	const attrHeader = unix.SizeofRtAttr
	for at := unix.NLMSG_HDRLEN + ifStatsMsg; at+attrHeader <= len(b); {
		size := int(order.Uint16(b[at:]))
		if size < attrHeader || at+size > len(b) {
			break
		}
		if v := b[at+attrHeader : at+size]; order.Uint16(b[at+2:]) == statsLink64 && len(v) >= atTxDropped+8 {
			return order.Uint64(v[atTxDropped:]), nil
		}
		at += (size + unix.RTA_ALIGNTO - 1) &^ (unix.RTA_ALIGNTO - 1)
	}
	return 0, fmt.Errorf("rtnetlink: the answer of %d bytes has no counters", len(b))
}
