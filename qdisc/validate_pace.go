package qdisc

import (
	"fmt"
	"math"
	"strconv"
)

// minOverhead is the lowest PacketOverhead: the smallest packet, a bare IPv4 header,
// must not come out below nothing, since the kernel would take that for a packet of
// 2^64 bytes (net/sched/sch_netem.c, packet_time_ns).
const minOverhead = -20

// superPacket is the size of the packets for which cells must be countable in the
// kernel's 32 bits.
const superPacket = 64 << 10

func (v *validation) rate(n Netem) {
	const based = "a rate that it counts for, such as rate 10mbit"
	if n.Rate > MaxRate {
		v.refuse("rate", n.Rate.String(), wantRate)
	}
	if n.Rate == 0 && n.PacketOverhead != 0 {
		v.refuse("rate.packet_overhead", strconv.Itoa(int(n.PacketOverhead)), based)
	}
	if n.Rate == 0 && n.CellSize != 0 {
		v.refuse("rate.cell_size", count(uint64(n.CellSize)), based)
	}
	if n.PacketOverhead < minOverhead {
		v.refuse("rate.packet_overhead", strconv.Itoa(int(n.PacketOverhead)),
			fmt.Sprintf("a whole number of bytes from %d to %d", minOverhead, math.MaxInt32))
	}
	if n.CellSize != 0 {
		v.cells(n)
	} else if n.CellOverhead != 0 {
		v.refuse("rate.cell_overhead", strconv.Itoa(int(n.CellOverhead)), "a cell size, such as 48, to whose cells it is added")
	}
}

// cells checks that no cell is smaller than nothing, and that the cells of a packet
// can be added up in 32 bits.
func (v *validation) cells(n Netem) {
	size, overhead := int64(n.CellSize), int64(n.CellOverhead)
	cells := (superPacket + max(int64(n.PacketOverhead), 0) + size - 1) / size
	low, high := max(-size, math.MinInt32), min(math.MaxUint32/cells-size, math.MaxInt32)
	switch {
	case high < 0:
		v.refuse("rate.cell_size", count(uint64(n.CellSize)), "cells that hold a packet of 64 KiB in less than 4 GiB")
	case overhead < low || overhead > high:
		v.refuse("rate.cell_overhead", strconv.FormatInt(overhead, 10), fmt.Sprintf("a whole number of bytes from %d to %d", low, high))
	}
}

func (v *validation) slot(s Slot) {
	if s == (Slot{}) {
		return
	}
	if s.Packets > math.MaxInt32 {
		v.refuse("slot.packets", count(uint64(s.Packets)), fmt.Sprintf("at most %d packets; 0 is no bound", math.MaxInt32))
	}
	if s.Bytes > math.MaxInt32 {
		v.refuse("slot.bytes", s.Bytes.String(), fmt.Sprintf("at most %dB; 0B is no bound", math.MaxInt32))
	}
	if s.Distribution != "" {
		v.slotShape(s)
		return
	}
	if s.Delay != 0 || s.Jitter != 0 || s.Samples != "" {
		v.refuse("slot.distribution", "", "normal, pareto, paretonormal or custom, for a delay with a jitter")
		return
	}
	v.duration("slot.min_delay", s.MinDelay, MaxDelay)
	v.duration("slot.max_delay", s.MaxDelay, MaxDelay)
	if s.MinDelay == 0 && s.MaxDelay == 0 {
		v.refuse("slot.min_delay", "0s", "a time between slots above 0s, such as 10ms")
	}
	// The kernel multiplies the difference with a 32-bit number, in 64 bits
	// (net/sched/sch_netem.c, get_slot_next).
	if longest := s.MinDelay + MaxJitter; s.MaxDelay != 0 && (s.MaxDelay < s.MinDelay || s.MaxDelay > longest) {
		v.refuse("slot.max_delay", FormatDuration(s.MaxDelay), fmt.Sprintf("from the least, %s, to %s", FormatDuration(s.MinDelay), FormatDuration(longest)))
	}
}

func (v *validation) slotShape(s Slot) {
	if s.MinDelay != 0 || s.MaxDelay != 0 {
		v.refuse("slot.min_delay", FormatDuration(s.MinDelay), "either times from min to max or a distribution")
	}
	if s.Distribution == Uniform {
		v.refuse("slot.distribution", string(s.Distribution), "normal, pareto, paretonormal or custom; uniform is said by min and max")
	}
	v.shape("slot.distribution", "slot.samples", s.Distribution, s.Samples)
	v.duration("slot.delay", s.Delay, MaxDelay)
	v.duration("slot.jitter", s.Jitter, MaxJitter)
	if s.Jitter == 0 {
		v.refuse("slot.jitter", FormatDuration(s.Jitter), "a duration above 0s that the distribution shapes, such as 5ms")
	}
}
