package model

import (
	"math"
	"testing"
	"time"

	"netemd/qdisc"
)

// fifo is netem's queue around a model, for packets that are all due in the order of
// their coming: what each one's time of leaving is.
type fifo struct {
	m       *Model
	waiting []int64 // due
	sizes   []int
	left    []time.Duration
}

// dequeue is what the kernel does at each packet that comes, and when it said that it
// would.
func (f *fifo) dequeue(now int64) (next int64) {
	for len(f.waiting) > 0 {
		if next = f.m.Opens(now, f.waiting[0]); next > now {
			return next
		}
		f.m.Left(now, f.sizes[0])
		f.left = append(f.left, time.Duration(now))
		f.waiting, f.sizes = f.waiting[1:], f.sizes[1:]
	}
	return math.MaxInt64
}

// run takes packets of size bytes that come at times, and lets the queue run empty.
func (f *fifo) run(times []time.Duration, size int) []time.Duration {
	next := int64(math.MaxInt64)
	for _, at := range times {
		for next <= int64(at) {
			next = f.dequeue(next)
		}
		v := f.m.Packet(int64(at), size, len(f.waiting), false)
		for _, c := range v.Copies[:v.Count] {
			f.waiting, f.sizes = append(f.waiting, c.Due), append(f.sizes, size)
		}
		next = f.dequeue(int64(at))
	}
	for next != math.MaxInt64 {
		next = f.dequeue(next)
	}
	return f.left
}

// Sequences that were worked out by hand from netem_dequeue. The first packet always
// finds a slot that began before it, when netem was set up.
func TestSlots(t *testing.T) {
	at := func(times ...float64) (d []time.Duration) {
		for _, x := range times {
			d = append(d, time.Duration(x*float64(ms)))
		}
		return d
	}
	ten := qdisc.Slot{MinDelay: 10 * ms}
	with := func(packets uint32, bytes qdisc.Bytes) qdisc.Slot {
		s := ten
		s.Packets, s.Bytes = packets, bytes
		return s
	}
	for _, tt := range []struct {
		name       string
		n          qdisc.Netem
		come, want []time.Duration
	}{
		{"no slots", qdisc.Netem{Delay: ms}, at(1, 2), at(2, 3)},
		{"gathered", qdisc.Netem{Slot: ten}, at(1, 3, 10.9), at(11, 11, 11)},
		// The one that comes in the moment of the slot leaves with it, a later one waits.
		{"at the slot", qdisc.Netem{Slot: ten}, at(1, 11, 11.5), at(11, 11, 21.5)},
		{"idle between", qdisc.Netem{Slot: ten}, at(1, 50), at(11, 60)},
		{"two in a slot", qdisc.Netem{Slot: with(2, 0)}, at(1, 2, 3, 4, 5), at(11, 11, 21, 21, 31)},
		// The packet that takes a slot over its bytes still leaves.
		{"bytes in a slot", qdisc.Netem{Slot: with(0, 150)}, at(1, 2, 3, 4, 5), at(11, 11, 21, 21, 31)},
		{"whichever is first", qdisc.Netem{Slot: with(3, 150)}, at(1, 2, 3), at(11, 11, 21)},
		// Drawn when it comes, at 1, the slot is over before the packet is due at 51; so
		// another is drawn when it is due.
		{"delay", qdisc.Netem{Delay: 50 * ms, Slot: ten}, at(1), at(61)},
		// The second one has the slot drawn again at 45, which then suits the first.
		{"delay, asked again", qdisc.Netem{Delay: 50 * ms, Slot: ten}, at(1, 45), at(55, 105)},
		// Packets of 100 bytes at 10 us a byte are due at 2, 3 and 4.
		{"rate", qdisc.Netem{Rate: 100_000, Slot: ten}, at(1, 1, 1), at(11, 11, 11)},
		// Due at 21: asked for at 1, the slot at 11 is too soon.
		{"rate slower than slots", qdisc.Netem{Rate: 5_000, Slot: ten}, at(1), at(31)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := fifo{m: New(tt.n)}
			got := f.run(tt.come, 100)
			if len(got) != len(tt.want) {
				t.Fatalf("%d left, want %d", len(got), len(tt.want))
			}
			for i, want := range tt.want {
				if got[i] != want {
					t.Errorf("packet %d leaves at %s, want %s", i, got[i], want)
				}
			}
		})
	}
}

// What waits leaves at once when slots are set, and with no slots when they are gone.
func TestSlotsFollow(t *testing.T) {
	before := New(qdisc.Netem{Delay: ms})
	m := New(qdisc.Netem{Slot: qdisc.Slot{MinDelay: 10 * ms}})
	m.Follow(before, int64(5*ms))
	if got := m.Opens(int64(5*ms), int64(ms)); got != int64(5*ms) {
		t.Errorf("leaves at %s", time.Duration(got))
	}
	none := New(qdisc.Netem{})
	none.Follow(m, int64(5*ms))
	if got := none.Opens(int64(5*ms), int64(6*ms)); got != int64(6*ms) {
		t.Errorf("without slots it leaves at %s", time.Duration(got))
	}
}

// times are those between the slots of one packet each, in a queue that never runs
// empty.
func times(s qdisc.Slot, seed uint64) []int64 {
	s.Packets = 1
	m := New(qdisc.Netem{Slot: s, Seed: seed})
	m.slots.next = 0
	out := make([]int64, packets)
	now := int64(0)
	for i := range out {
		m.Left(now, 100)
		next := m.Opens(now, 0)
		out[i] = next - now
		now = max(now, next)
	}
	return out
}

func TestSlotTimes(t *testing.T) {
	// The bound of Dvoretzky, Kiefer and Wolfowitz at 1 in 10,000:
	// sqrt(ln(2/0.0001)/2n).
	bound := math.Sqrt(math.Log(2/0.0001) / 2 / packets)
	got := times(qdisc.Slot{MinDelay: 10 * ms, MaxDelay: 30 * ms}, 1)
	for _, share := range []float64{.05, .25, .5, .75, .95} {
		below := 0
		for _, d := range got {
			if d < int64(10*ms)+int64(share*float64(20*ms)) {
				below++
			}
		}
		if p := float64(below) / packets; math.Abs(p-share) > bound {
			t.Errorf("%.4f of the times are in the first %.2f, want +- %.4f", p, share, bound)
		}
	}
	if _, _, least, most := moments(got); least < int64(10*ms) || most >= int64(30*ms) {
		t.Errorf("from %s to %s", time.Duration(least), time.Duration(most))
	}
	if d := times(qdisc.Slot{MinDelay: 10 * ms, MaxDelay: 10 * ms}, 1); d[0] != int64(10*ms) || d[1] != d[0] {
		t.Errorf("of one length: %v", d[:2])
	}
	// A distribution has the kernel's table around the mean.
	table := qdisc.SamplesOf([]int16{-qdisc.TableScale, 0, 0, qdisc.TableScale})
	count := map[int64]int{}
	for _, d := range times(qdisc.Slot{Distribution: qdisc.Custom, Samples: table, Delay: 10 * ms, Jitter: 4 * ms}, 1) {
		count[d]++
	}
	for d, p := range map[int64]float64{int64(6 * ms): .25, int64(10 * ms): .5, int64(14 * ms): .25} {
		within(t, "slots of that length", count[d], packets, p)
		delete(count, d)
	}
	if len(count) > 0 {
		t.Errorf("other lengths: %v", count)
	}
	a := times(qdisc.Slot{Distribution: qdisc.Normal, Delay: 10 * ms, Jitter: ms}, 1)
	mean, dev, _, _ := moments(a)
	if math.Abs(mean-float64(10*ms)) > 3.89*dev/math.Sqrt(packets)+1000 || math.Abs(dev-float64(ms)) > .02*float64(ms) {
		t.Errorf("normal: mean %.0f, deviation %.0f", mean, dev)
	}
	b, c := times(qdisc.Slot{MinDelay: ms, MaxDelay: 9 * ms}, 1), times(qdisc.Slot{MinDelay: ms, MaxDelay: 9 * ms}, 2)
	same := 0
	for i := range b {
		if b[i] == c[i] {
			same++
		}
	}
	if same > packets/100 {
		t.Errorf("two seeds have %d of %d times in common", same, packets)
	}
}
