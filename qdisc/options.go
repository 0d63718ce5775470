package qdisc

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// Attributes of a netem qdisc (include/uapi/linux/pkt_sched.h, TCA_NETEM_*).
const (
	attrCorr      = 1
	attrDelayDist = 2
	attrReorder   = 3
	attrCorrupt   = 4
	attrLoss      = 5
	attrRate      = 6
	attrECN       = 7
	attrRate64    = 8
	attrLatency64 = 10
	attrJitter64  = 11
	attrSlot      = 12
	attrSlotDist  = 13
	attrSeed      = 14

	attrTypeMask = 0x3fff // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
)

// qoptSize is the size of struct tc_netem_qopt: latency, limit, loss, gap,
// duplicate and jitter, 32 bits each.
const qoptSize = 24

// tick is the unit of the times in tc_netem_qopt (PSCHED_SHIFT 6).
const tick = 64 * time.Nanosecond

var order = binary.NativeEndian

// MarshalOptions is the payload of TCA_OPTIONS for n: struct tc_netem_qopt, then
// the attributes, in the bytes and the order in which the tc of iproute2 6.1
// sends the arguments of TC. It differs from that tc in three things that would
// silently make another impairment: times that are no multiple of 64 ns or above
// 274 s are sent whole, in the 64-bit attributes; a correlation of duplicates is
// sent at all; and so is a seed, which that tc does not know.
//
// What Normalize fills in is sent, so the limit is never 0. An n that Validate refuses is
// refused with the same error.
func (n Netem) MarshalOptions() ([]byte, error) {
	return n.marshalChange(Netem{}, nil)
}

// marshalChange is MarshalOptions for a qdisc on which former is in force and
// other names what Netem does not model. sch_netem keeps what a change leaves
// out, so what was set and is not any more is sent as zero, and a distribution's
// table is overwritten with a uniform one.
func (n Netem) marshalChange(former Netem, other []string) ([]byte, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	n = n.Normalize()
	b := make([]byte, 0, 128)
	b = order.AppendUint32(b, ticks(n.Delay))
	b = order.AppendUint32(b, n.Limit)
	b = order.AppendUint32(b, n.Loss.Fraction())
	b = order.AppendUint32(b, n.Gap)
	b = order.AppendUint32(b, n.Duplicate.Fraction())
	b = order.AppendUint32(b, ticks(n.Jitter))

	if !inTicks(n.Delay) {
		b = appendAttr(b, attrLatency64, order.AppendUint64(nil, uint64(n.Delay)))
	}
	if !inTicks(n.Jitter) {
		b = appendAttr(b, attrJitter64, order.AppendUint64(nil, uint64(n.Jitter)))
	}
	if n.correlated() || former.correlated() {
		b = appendAttr(b, attrCorr, fractions(n.DelayCorrelation, n.LossCorrelation, n.DuplicateCorrelation))
	}
	if n.Reorder != 0 || former.Reorder != 0 {
		b = appendAttr(b, attrReorder, fractions(n.Reorder, n.ReorderCorrelation))
	}
	if n.Corrupt != 0 || former.Corrupt != 0 {
		b = appendAttr(b, attrCorrupt, fractions(n.Corrupt, n.CorruptCorrelation))
	}
	for _, name := range other {
		if o, ok := others[name]; ok && o.off != 0 {
			b = appendAttr(b, o.attr, make([]byte, o.off))
		}
	}
	if n.Seed != 0 {
		b = appendAttr(b, attrSeed, order.AppendUint64(nil, n.Seed))
	}
	if table := n.table(former); table != nil {
		samples := make([]byte, 0, 2*len(table))
		for _, s := range table {
			samples = order.AppendUint16(samples, uint16(s))
		}
		b = appendAttr(b, attrDelayDist, samples)
	}
	return b, nil
}

// correlated reports whether TCA_NETEM_CORR is sent. tc sends it for the
// correlations that stand elsewhere, too.
func (n Netem) correlated() bool {
	return n.DelayCorrelation != 0 || n.LossCorrelation != 0 || n.DuplicateCorrelation != 0 ||
		n.ReorderCorrelation != 0 || n.CorruptCorrelation != 0
}

// table is the table that must be sent for n, nil for none.
func (n Netem) table(former Netem) []int16 {
	switch {
	case n.Jitter == 0:
		return nil
	case n.Distribution != "" && n.Distribution != Uniform:
		return tables[n.Distribution]()
	case former.Distribution != "" && former.Distribution != Uniform:
		return tables[Uniform]()
	}
	return nil
}

// others are the features of sch_netem that Netem does not model, with the
// attribute whose first off bytes of zeros turn the feature off. A loss model
// ends by itself when a change does not name it.
var others = map[string]struct {
	attr uint16
	off  int
}{
	"rate":       {attrRate, 16}, // struct tc_netem_rate
	"ecn":        {attrECN, 4},
	"slot":       {attrSlot, 40}, // struct tc_netem_slot
	"loss model": {attrLoss, 0},
}

// UnmarshalOptions reads the payload of TCA_OPTIONS, from a message to the
// kernel or from a dump. Attributes that it does not know are skipped. What the
// kernel does not dump stays zero: the distribution always, the seed before
// Linux 6.6; later kernels dump the seed that they drew themselves, too.
func UnmarshalOptions(b []byte) (Netem, error) {
	n, _, err := unmarshal(b)
	return n, err
}

// unmarshal also names what is in force and not modelled, by the names of others.
func unmarshal(b []byte) (n Netem, other []string, err error) {
	if len(b) < qoptSize {
		return Netem{}, nil, fmt.Errorf("netem options: %d bytes, want %d or more", len(b), qoptSize)
	}
	n.Delay = time.Duration(order.Uint32(b)) * tick
	n.Limit = order.Uint32(b[4:])
	n.Loss = PercentOf(order.Uint32(b[8:]))
	n.Gap = order.Uint32(b[12:])
	n.Duplicate = PercentOf(order.Uint32(b[16:]))
	n.Jitter = time.Duration(order.Uint32(b[20:])) * tick
	err = eachAttr(b[qoptSize:], func(attr uint16, v []byte) error {
		if want := sizes[attr]; len(v) < want {
			return fmt.Errorf("netem options: attribute %d has %d bytes, want %d or more", attr, len(v), want)
		}
		switch attr {
		case attrLatency64:
			n.Delay = time.Duration(order.Uint64(v))
		case attrJitter64:
			n.Jitter = time.Duration(order.Uint64(v))
		case attrCorr:
			n.DelayCorrelation = PercentOf(order.Uint32(v))
			n.LossCorrelation = PercentOf(order.Uint32(v[4:]))
			n.DuplicateCorrelation = PercentOf(order.Uint32(v[8:]))
		case attrReorder:
			n.Reorder, n.ReorderCorrelation = PercentOf(order.Uint32(v)), PercentOf(order.Uint32(v[4:]))
		case attrCorrupt:
			n.Corrupt, n.CorruptCorrelation = PercentOf(order.Uint32(v)), PercentOf(order.Uint32(v[4:]))
		case attrSeed:
			n.Seed = order.Uint64(v)
		case attrDelayDist:
			n.Distribution = shapeOf(v)
		case attrLoss:
			other = append(other, "loss model")
		case attrRate, attrECN, attrSlot:
			for name, o := range others {
				if o.attr == attr && !zero(v) {
					other = append(other, name)
				}
			}
		}
		return nil
	})
	if err != nil {
		return Netem{}, nil, err
	}
	return n, other, nil
}

// sizes are the smallest payloads of the attributes that are read.
var sizes = map[uint16]int{
	attrLatency64: 8, attrJitter64: 8, attrSeed: 8, attrCorr: 12, attrReorder: 8, attrCorrupt: 8,
}

// shapeOf recognises a table, which only messages to the kernel have; empty for
// one that is not of ours.
func shapeOf(v []byte) Distribution {
	for _, d := range []Distribution{Normal, Pareto, ParetoNormal, Uniform} {
		t := tables[d]()
		same := len(v) == 2*len(t)
		for k := 0; same && k < len(t); k++ {
			same = int16(order.Uint16(v[2*k:])) == t[k]
		}
		if same {
			return d
		}
	}
	return ""
}

// appendAttr adds one netlink attribute with its padding.
func appendAttr(b []byte, attr uint16, v []byte) []byte {
	b = order.AppendUint16(b, uint16(4+len(v)))
	b = order.AppendUint16(b, attr)
	b = append(b, v...)
	return append(b, make([]byte, -len(v)&3)...)
}

// eachAttr calls f for every netlink attribute in b.
func eachAttr(b []byte, f func(attr uint16, v []byte) error) error {
	for len(b) > 0 {
		if len(b) < 4 {
			return fmt.Errorf("netlink attribute: %d bytes left over", len(b))
		}
		size := int(order.Uint16(b))
		if size < 4 || size > len(b) {
			return fmt.Errorf("netlink attribute: length %d, with %d bytes left", size, len(b))
		}
		if err := f(order.Uint16(b[2:])&attrTypeMask, b[4:size]); err != nil {
			return err
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}

func fractions(shares ...Percent) []byte {
	b := make([]byte, 0, 4*len(shares))
	for _, p := range shares {
		b = order.AppendUint32(b, p.Fraction())
	}
	return b
}

// ticks is d in the kernel's legacy unit, cut to 32 bits.
func ticks(d time.Duration) uint32 {
	return uint32(min(d/tick, math.MaxUint32))
}

// inTicks reports whether the legacy field holds d exactly.
func inTicks(d time.Duration) bool {
	return d%tick == 0 && d/tick <= math.MaxUint32
}

func zero(b []byte) bool {
	for _, v := range b {
		if v != 0 {
			return false
		}
	}
	return true
}
