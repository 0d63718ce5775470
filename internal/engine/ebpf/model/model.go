// Package model says what netem would do to a packet: lose it, copy it, flip a bit
// of it, and when to send it. It follows the kernel's sch_netem (net/sched/sch_netem.c,
// netem_enqueue, loss_event, get_crandom, tabledist, get_slot_next and netem_dequeue of
// Linux 6.12), holds no packets and does no input or output.
package model

import (
	"math/rand/v2"

	"netemd/qdisc"
)

// Model is the state of one impairment. It is not safe for concurrent use.
type Model struct {
	limit                              int
	ecn, frames                        bool
	delay, jitter                      int64
	table                              []int16
	gap, counter                       uint32
	loss, duplicate, corrupt, disorder draw
	// chain takes the place of loss where it has a kind.
	chain Chain
	step  func() uint32
	rate  rate
	slots slots
	// last is when the last of the packets that wait leaves, if any does.
	last int64
	// spread draws the delays, and bits which bit is flipped.
	spread draw
	bits   rand.PCG
}

// Copy is one packet to send.
type Copy struct {
	// Due is when it is to leave. Copies leave in order of Due, those with the same
	// one in the order in which they came.
	Due int64
	// Ahead says that it leaves before all that wait, at once.
	Ahead bool
	// Bit is the bit of the frame to flip, -1 none.
	Bit int
	// Mark says that it is to carry Congestion Experienced (RFC 3168).
	Mark bool
}

// Verdict is what becomes of one packet.
type Verdict struct {
	// Copies[:Count] are to be queued, in this order.
	Copies [2]Copy
	Count  int
	// Lost, Overflow, Duplicated, Corrupted, Reordered and Delayed count the copies
	// that it happened to. Count = 1 + Duplicated - Lost - Overflow. Whether a packet that is
	// not delayed waits for a slot, Opens says later.
	Lost, Overflow, Duplicated, Corrupted, Reordered, Delayed int
}

// New makes the model of n. Each kind of draw has a stream of its own, so that one
// impairment does not shift another's; a seed of 0 is as good as any other.
func New(n qdisc.Netem) *Model {
	n = n.Normalize()
	m := &Model{
		limit: int(n.Limit), ecn: n.ECN, frames: Frames(n), delay: int64(n.Delay), jitter: int64(n.Jitter),
		table: n.JitterTable(), gap: gap(n),
		loss:      newDraw(n.Seed, "loss", n.Loss, n.LossCorrelation),
		duplicate: newDraw(n.Seed, "duplicate", n.Duplicate, n.DuplicateCorrelation),
		corrupt:   newDraw(n.Seed, "corrupt", n.Corrupt, n.CorruptCorrelation),
		disorder:  newDraw(n.Seed, "reorder", n.Reorder, n.ReorderCorrelation),
		spread:    newDraw(n.Seed, "delay", 0, n.DelayCorrelation),
		bits:      *rand.NewPCG(n.Seed, stream("bit")),
		chain:     NewChain(n),
		rate:      rateOf(n),
		slots:     slotsOf(n),
	}
	m.step = m.loss.uniform
	return m
}

func (m *Model) lost() bool {
	if m.chain.Kind != Independent {
		return m.chain.Lost(m.step)
	}
	return m.loss.hit()
}

func gap(n qdisc.Netem) uint32 {
	if n.Reorder == 0 {
		return 0
	}
	return n.Gap
}

// Frames reports whether n must see packets as they are on the wire: everything
// but a delay, and a slot without bounds, counts packets, and segmentation offload
// would have it count 64 KB as one.
func Frames(n qdisc.Netem) bool {
	if n.Slot.Packets == 0 && n.Slot.Bytes == 0 {
		n.Slot = qdisc.Slot{}
	}
	n.Delay, n.Jitter, n.DelayCorrelation, n.Distribution, n.Samples = 0, 0, 0, "", ""
	return !n.IsZero()
}

// Frames reports whether the model must see each packet as it is on the wire.
func (m *Model) Frames() bool { return m.frames }

// Marks reports whether the model marks packets instead of dropping them, so that
// Packet must know which can be.
func (m *Model) Marks() bool { return m.ecn }

// Packet takes a frame of size bytes that comes in at now, in ns, while queued ones
// wait. markable says that it carries ECN (RFC 3168), so that it can be marked.
func (m *Model) Packet(now int64, size, queued int, markable bool) Verdict {
	var v Verdict
	m.enqueue(&v, Copy{Bit: -1}, now, size, queued, m.ecn && markable, true)
	return v
}

func (m *Model) enqueue(v *Verdict, c Copy, now int64, size, queued int, markable, original bool) {
	count := 1
	if original && m.duplicate.hit() {
		v.Duplicated++
		count++
	}
	if m.lost() {
		if markable {
			c.Mark = true
		} else {
			v.Lost++
			count--
		}
	}
	if count == 0 {
		return
	}
	copied := c
	if m.corrupt.hit() && size > 0 {
		c.Bit = int(m.bits.Uint64() % uint64(8*size))
	}
	if queued >= m.limit {
		v.Overflow += count
		return
	}
	// The copy takes the whole way once more, but is not copied again; it comes
	// first, and without the flipped bit.
	if count > 1 {
		m.enqueue(v, copied, now, size, queued, markable, false)
	}
	if c.Bit >= 0 {
		v.Corrupted++
	}
	if m.gap == 0 || m.counter < m.gap-1 || m.disorder.share < m.disorder.next() {
		c.Due = m.due(now, size)
		m.counter++
		if c.Due > now {
			v.Delayed++
		}
	} else {
		c.Due, c.Ahead = now, true
		m.counter = 0
		v.Reordered++
	}
	v.Copies[v.Count] = c
	v.Count++
}

// due is when a packet leaves that comes at now. With a rate, packets leave one after
// the other: what waits longest is where the next one begins, and waiting for it counts
// as delay.
func (m *Model) due(now int64, size int) int64 {
	delay := m.latency()
	if m.rate.bytes != 0 {
		if m.last > now {
			delay = max(0, delay-(m.last-now))
			now = m.last
		}
		delay += m.rate.time(size)
	}
	m.last = max(m.last, now+delay)
	return now + delay
}

// Follow makes m, from now on, the model of a queue that before has filled: with a rate,
// what waits leaves first, and with slots what is due leaves with the first one, now.
func (m *Model) Follow(before *Model, now int64) {
	m.last = before.last
	m.slots.next = now
}

// latency draws a delay (tabledist).
func (m *Model) latency() int64 {
	if m.jitter == 0 {
		return m.delay
	}
	r := m.spread.next()
	if m.table == nil {
		return int64(uint64(r)%uint64(2*m.jitter)) + m.delay - m.jitter
	}
	return shaped(m.delay, m.jitter, m.table, r)
}

// shaped is the delay around mean that r picks of a table.
func shaped(mean, jitter int64, table []int16, r uint32) int64 {
	t := int64(table[int(r)%len(table)])
	x := jitter % qdisc.TableScale * t
	if x >= 0 {
		x += qdisc.TableScale / 2
	} else {
		x -= qdisc.TableScale / 2
	}
	return x/qdisc.TableScale + jitter/qdisc.TableScale*t + mean
}
