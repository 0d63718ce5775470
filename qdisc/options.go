package qdisc

import (
	"encoding/binary"
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

	// in attrLoss
	attrLossState   = 1 // NETEM_LOSS_GI, struct tc_netem_gimodel
	attrLossGemodel = 2 // NETEM_LOSS_GE, struct tc_netem_gemodel
)

// Sizes of the structures in pkt_sched.h.
const (
	qoptSize = 24 // tc_netem_qopt: latency, limit, loss, gap, duplicate and jitter, 32 bits each
	rateSize = 16 // tc_netem_rate: rate, packet overhead, cell size and cell overhead, 32 bits each
	slotSize = 40 // tc_netem_slot: 64-bit least and largest delay, 32-bit packets and bytes, 64-bit delay and jitter
)

// tick is the unit of the times in tc_netem_qopt (PSCHED_SHIFT 6).
const tick = 64 * time.Nanosecond

var order = binary.NativeEndian

// MarshalOptions is the payload of TCA_OPTIONS for n: struct tc_netem_qopt, then
// the attributes, in the bytes and the order in which the tc of iproute2 6.1
// sends the arguments of TC. It differs from that tc in four things that would
// silently make another impairment: times that are no multiple of 64 ns or above
// 274 s are sent whole, in the 64-bit attributes; a correlation of duplicates is
// sent at all; so is a seed, which that tc does not know; and the shares of a loss state
// that are 100 % together do not overflow (see Normalize).
//
// What Normalize fills in is sent, so the limit is never 0. An n that Validate refuses is
// refused with the same error.
func (n Netem) MarshalOptions() ([]byte, error) {
	return n.marshal(nil)
}

// marshal is MarshalOptions for a qdisc on which former is in force, or a new one if
// that is nil. sch_netem keeps what a change leaves out, so what was set and is not any
// more is sent as zero, and a distribution's table is overwritten with a uniform one.
// Only a loss model ends by itself when a change does not name it.
func (n Netem) marshal(former *Netem) ([]byte, error) {
	if err := n.Validate(); err != nil {
		return nil, err
	}
	n = n.Normalize()
	var was Netem
	if former != nil {
		was = *former
	}
	table, slotTable := n.jitterTable(was), n.Slot.table(former != nil)
	const most = 256 // bytes of all attributes but the tables
	b := make([]byte, 0, most+2*len(table)+2*len(slotTable))

	b = appendUint32s(b, ticks(n.Delay), n.Limit, n.Loss.Fraction(), n.Gap, n.Duplicate.Fraction(), ticks(n.Jitter))
	if !inTicks(n.Delay) {
		b = order.AppendUint64(appendHeader(b, attrLatency64, 8), uint64(n.Delay))
	}
	if !inTicks(n.Jitter) {
		b = order.AppendUint64(appendHeader(b, attrJitter64, 8), uint64(n.Jitter))
	}
	if n.correlated() || was.correlated() {
		b = appendUint32s(appendHeader(b, attrCorr, 12),
			n.DelayCorrelation.Fraction(), n.LossCorrelation.Fraction(), n.DuplicateCorrelation.Fraction())
	}
	if n.Reorder != 0 || was.Reorder != 0 {
		b = appendUint32s(appendHeader(b, attrReorder, 8), n.Reorder.Fraction(), n.ReorderCorrelation.Fraction())
	}
	if n.ECN || was.ECN {
		b = appendUint32s(appendHeader(b, attrECN, 4), flag(n.ECN))
	}
	if n.Corrupt != 0 || was.Corrupt != 0 {
		b = appendUint32s(appendHeader(b, attrCorrupt, 8), n.Corrupt.Fraction(), n.CorruptCorrelation.Fraction())
	}
	if n.Slot != (Slot{}) || was.Slot != (Slot{}) {
		b = n.Slot.append(b, former != nil)
	}
	b = n.appendLossModel(b)
	if n.Rate != 0 || was.Rate != 0 {
		b = n.appendRate(b)
	}
	if n.Seed != 0 {
		b = order.AppendUint64(appendHeader(b, attrSeed, 8), n.Seed)
	}
	b = appendTable(b, attrDelayDist, table)
	return appendTable(b, attrSlotDist, slotTable), nil
}

// anything has everything that only an attribute ends: the former of a root of which
// nothing is known.
var anything = Netem{
	Jitter: 1, DelayCorrelation: 1, Distribution: Normal, Reorder: 1, Corrupt: 1, ECN: true, Rate: 1, Slot: Slot{MinDelay: 1},
}

// correlated reports whether TCA_NETEM_CORR is sent. tc sends it for the
// correlations that stand elsewhere, too.
func (n Netem) correlated() bool {
	return n.DelayCorrelation != 0 || n.LossCorrelation != 0 || n.DuplicateCorrelation != 0 ||
		n.ReorderCorrelation != 0 || n.CorruptCorrelation != 0
}

// jitterTable is the table that must be sent for n, nil for none.
func (n Netem) jitterTable(former Netem) []int16 {
	if table := n.JitterTable(); table != nil || n.Jitter == 0 {
		return table
	}
	if former.Distribution != "" && former.Distribution != Uniform {
		return tables[Uniform]()
	}
	return nil
}

// table is the table that must be sent for s, nil for none. Once a slot has had a
// distribution, the kernel never draws from MinDelay to MaxDelay again (get_slot_next
// in net/sched/sch_netem.c), and its dump does not say so; so a change sends the same
// times as a distribution, too.
func (s Slot) table(change bool) []int16 {
	if table := s.Table(); table != nil || !change || s.MinDelay == s.MaxDelay {
		return table
	}
	return tables[Uniform]()
}

func (s Slot) append(b []byte, change bool) []byte {
	delay, jitter := s.Delay, s.Jitter
	if change && s.Distribution == "" {
		delay, jitter = s.MinDelay+(s.MaxDelay-s.MinDelay)/2, (s.MaxDelay-s.MinDelay)/2
	}
	b = appendHeader(b, attrSlot, slotSize)
	b = order.AppendUint64(b, uint64(s.MinDelay))
	b = order.AppendUint64(b, uint64(s.MaxDelay))
	b = appendUint32s(b, s.Packets, uint32(s.Bytes))
	b = order.AppendUint64(b, uint64(delay))
	return order.AppendUint64(b, uint64(jitter))
}

func (n Netem) appendLossModel(b []byte) []byte {
	const nested = 0x8000 // NLA_F_NESTED
	switch s, g := n.LossState, n.GilbertElliott; {
	case s != LossState{}:
		b = appendHeader(appendHeader(b, attrLoss|nested, 24), attrLossState, 20)
		b = appendUint32s(b, s.P13.Fraction(), s.P31.Fraction(), s.P32.Fraction(), s.P14.Fraction(), s.P23.Fraction())
	case g != GilbertElliott{}:
		b = appendHeader(appendHeader(b, attrLoss|nested, 20), attrLossGemodel, 16)
		b = appendUint32s(b, g.P.Fraction(), g.R.Fraction(), math.MaxUint32-g.LossBad.Fraction(), g.LossGood.Fraction())
	}
	return b
}

func (n Netem) appendRate(b []byte) []byte {
	low := uint32(min(n.Rate, math.MaxUint32))
	if n.Rate > math.MaxUint32 {
		b = order.AppendUint64(appendHeader(b, attrRate64, 8), uint64(n.Rate))
	}
	return appendUint32s(appendHeader(b, attrRate, rateSize), low, uint32(n.PacketOverhead), n.CellSize, uint32(n.CellOverhead))
}

func appendTable(b []byte, attr uint16, table []int16) []byte {
	if table == nil {
		return b
	}
	b = appendHeader(b, attr, 2*len(table))
	for _, s := range table {
		b = order.AppendUint16(b, uint16(s))
	}
	return append(b, make([]byte, -(2*len(table))&3)...)
}

func appendUint32s(b []byte, values ...uint32) []byte {
	for _, v := range values {
		b = order.AppendUint32(b, v)
	}
	return b
}

// appendHeader begins an attribute with a payload of size bytes.
func appendHeader(b []byte, attr uint16, size int) []byte {
	return order.AppendUint16(order.AppendUint16(b, uint16(4+size)), attr)
}

// appendAttr adds one netlink attribute with its padding.
func appendAttr(b []byte, attr uint16, v []byte) []byte {
	b = append(appendHeader(b, attr, len(v)), v...)
	return append(b, make([]byte, -len(v)&3)...)
}

func flag(on bool) uint32 {
	if on {
		return 1
	}
	return 0
}

// ticks is d in the kernel's legacy unit, cut to 32 bits.
func ticks(d time.Duration) uint32 {
	return uint32(min(d/tick, math.MaxUint32))
}

// inTicks reports whether the legacy field holds d exactly.
func inTicks(d time.Duration) bool {
	return d%tick == 0 && d/tick <= math.MaxUint32
}
