package qdisc

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// parentRoot is TC_H_ROOT: the qdisc hangs on the device itself.
const parentRoot uint32 = 0xffff_ffff

// State is what the kernel says about a device's root qdisc.
type State struct {
	// Kind is "netem", "noqueue", "mq" and so on; empty when the device shows none.
	Kind string
	// Handle is the qdisc's own; 0 for one that the kernel put there by default.
	Handle uint32
	// Netem is the impairment of a netem; Other names what is in force there in a form
	// that Netem has not ("loss model", "rate", "slot"), so that it is not ours.
	Netem Netem
	Other []string
	Stats Stats
}

// Ours reports whether netemd made this qdisc.
func (s State) Ours() bool { return s.Kind == kind && s.Handle == Handle }

// Foreign reports whether somebody else put the qdisc there.
func (s State) Foreign() bool { return s.Handle != 0 && !s.Ours() }

// String says the qdisc as tc does: "netem 4e45:", "htb 77:", "noqueue 0:".
func (s State) String() string {
	if s.Kind == "" {
		return "no qdisc"
	}
	return fmt.Sprintf("%s %x:", s.Kind, s.Handle>>16)
}

// Stats are the counters of a qdisc since it was made
// (include/uapi/linux/gen_stats.h). A super-packet counts in Packets as the
// segments that it stands for, and once everywhere else.
type Stats struct {
	// Bytes and Packets left the qdisc.
	Bytes, Packets uint64
	// Queued and Backlog are the packets and bytes in it now.
	Queued, Backlog uint32
	// Drops counts, in a netem, packets of its loss as well as those that found the
	// queue full; and those that ECN marked, though they pass.
	Drops uint32
	// Requeues counts, in a netem, packets that its reorder sent ahead.
	Requeues, Overlimits uint32
	// Netem is a netem's own count, nil where the kernel has none.
	Netem *NetemStats
}

// NetemStats are what a netem did since it was made (struct tc_netem_xstats in
// include/uapi/linux/pkt_sched.h, where it is since 2026; iproute2 prints it as such).
// No kernel up to 6.18 has them.
type NetemStats struct {
	// Delayed, Lost, Corrupted, Duplicated and Reordered are packets. Lost counts what
	// the loss dropped, and not what found the queue full.
	Delayed, Lost, Corrupted, Duplicated, Reordered uint64
	// Marked are packets that ECN marked instead of dropping them.
	Marked uint64
	// Failed are packets for which there was no memory.
	Failed uint64
}

// Root reads the root qdisc of a device. The error is fs.ErrNotExist when the
// device is gone.
//
// It dumps the qdiscs of the namespace: the kernel has no filter for them, and
// before Linux 6.8 a request for a single one tells every listener of its events
// that the qdisc was changed.
func (c *Conn) Root(d Device) (State, error) {
	const op = "qdisc read"
	replies, err := c.netlink.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETQDISC, Flags: netlink.Request | netlink.Dump},
		Data:   tcmsg(d.Index, 0),
	})
	if err != nil {
		return State{}, c.opError(op, d, err)
	}
	for _, m := range replies {
		if len(m.Data) < tcmsgSize || int(int32(order.Uint32(m.Data[4:]))) != d.Index || order.Uint32(m.Data[12:]) != parentRoot {
			continue
		}
		s, err := unmarshalState(m.Data)
		if err != nil {
			return State{}, c.opError(op, d, err)
		}
		return s, nil
	}
	// Either the device shows no qdisc, as before it was first up, or it is gone.
	link := make([]byte, unix.SizeofIfInfomsg)
	order.PutUint32(link[4:], uint32(int32(d.Index)))
	_, err = c.netlink.Execute(netlink.Message{
		Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request},
		Data:   link,
	})
	return State{}, c.opError(op, d, err)
}

func unmarshalState(b []byte) (State, error) {
	s := State{Handle: order.Uint32(b[8:])}
	var options, stats []byte
	err := eachAttr(b[tcmsgSize:], func(attr uint16, v []byte) error {
		switch attr {
		case attrKind:
			s.Kind = unix.ByteSliceToString(v)
		case attrOptions:
			options = v
		case attrStats2:
			stats = v
		}
		return nil
	})
	if err == nil {
		err = s.Stats.unmarshal(stats, s.Kind)
	}
	if err != nil || s.Kind != kind {
		return s, err
	}
	s.Netem, s.Other, err = unmarshal(options)
	return s, err
}

// unmarshal reads TCA_STATS2 of a qdisc of the kind.
func (s *Stats) unmarshal(b []byte, of string) error {
	const basic, queue, app, packets64 = 1, 3, 4, 8 // TCA_STATS_*
	sizes := map[uint16]int{basic: 12, queue: 20, packets64: 8}
	return eachAttr(b, func(attr uint16, v []byte) error {
		if len(v) < sizes[attr] {
			return fmt.Errorf("qdisc statistics %d: %d bytes, want %d or more", attr, len(v), sizes[attr])
		}
		switch attr {
		case basic:
			s.Bytes, s.Packets = order.Uint64(v), max(s.Packets, uint64(order.Uint32(v[8:])))
		case queue:
			s.Queued, s.Backlog = order.Uint32(v), order.Uint32(v[4:])
			s.Drops, s.Requeues, s.Overlimits = order.Uint32(v[8:]), order.Uint32(v[12:]), order.Uint32(v[16:])
		case packets64:
			s.Packets = order.Uint64(v)
		case app:
			if of == kind {
				s.Netem = unmarshalNetemStats(v)
			}
		}
		return nil
	})
}

// unmarshalNetemStats reads as many counters as there are: later kernels may append
// some, and one that had fewer is as good.
func unmarshalNetemStats(b []byte) *NetemStats {
	var s NetemStats
	for _, field := range []*uint64{&s.Delayed, &s.Lost, &s.Corrupted, &s.Duplicated, &s.Reordered, &s.Marked, &s.Failed} {
		if len(b) < 8 {
			break
		}
		*field, b = order.Uint64(b), b[8:]
	}
	return &s
}
