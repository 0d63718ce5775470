package model

import (
	"math"
	"math/bits"

	"netemd/qdisc"
)

// slots gathers packets and lets them leave together (get_slot_next and the slot in
// netem_dequeue). The zero value lets every packet leave when it is due.
type slots struct {
	on bool
	// least and spread are the times between slots in ns, drawn uniformly.
	least, spread int64
	// mean, jitter and table shape them instead.
	mean, jitter int64
	table        []int16
	draw         draw
	// maxPackets and maxBytes bound one slot; packets and bytes are what it has left.
	maxPackets, maxBytes int64
	packets, bytes       int64
	// next is when the slot opens.
	next int64
}

func slotsOf(n qdisc.Netem) slots {
	if n.Slot == (qdisc.Slot{}) {
		return slots{}
	}
	bound := func(x int64) int64 {
		if x == 0 {
			return math.MaxInt32
		}
		return x
	}
	s := slots{
		on: true, least: int64(n.Slot.MinDelay), spread: int64(n.Slot.MaxDelay - n.Slot.MinDelay),
		mean: int64(n.Slot.Delay), jitter: int64(n.Slot.Jitter), table: n.Slot.Table(),
		draw:       newDraw(n.Seed, "slot", 0, 0),
		maxPackets: bound(int64(n.Slot.Packets)), maxBytes: bound(int64(n.Slot.Bytes)),
		next: math.MinInt64,
	}
	s.packets, s.bytes = s.maxPackets, s.maxBytes
	return s
}

// begin draws the next slot.
func (s *slots) begin(now int64) {
	r := s.draw.uniform()
	if s.table != nil {
		s.next = now + shaped(s.mean, s.jitter, s.table, r)
	} else {
		wide, low := bits.Mul64(uint64(r), uint64(s.spread))
		s.next = now + s.least + int64(wide<<32|low>>32)
	}
	s.packets, s.bytes = s.maxPackets, s.maxBytes
}

// Opens is when the packet may leave that is due first, at due, of those that wait. A
// packet that is due after the slot's beginning has come too late for it, and waits for
// the next, so the kernel's answer depends on when it is asked: at each packet that
// comes, at the time that was answered last, and after each packet that left.
func (m *Model) Opens(now, due int64) int64 {
	s := &m.slots
	if !s.on {
		return due
	}
	if s.next < due {
		s.begin(now)
	}
	return max(due, s.next)
}

// Left says that a packet of size bytes has left at now, as Opens allowed.
func (m *Model) Left(now int64, size int) {
	s := &m.slots
	if !s.on {
		return
	}
	s.packets--
	s.bytes -= int64(size)
	if s.packets <= 0 || s.bytes <= 0 {
		s.begin(now)
	}
}

// Together reports whether packets that are due at the same time may leave as one: no
// slot counts them.
func (m *Model) Together() bool {
	s := &m.slots
	return !s.on || s.maxPackets == math.MaxInt32 && s.maxBytes == math.MaxInt32
}
