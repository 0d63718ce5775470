package model

import (
	"testing"
	"time"

	"netemd/qdisc"
)

const us = time.Microsecond

func TestRateTime(t *testing.T) {
	const mb = 1_000_000 // bytes per second: a byte takes 1 us
	for _, tt := range []struct {
		n    qdisc.Netem
		size int
		want time.Duration
	}{
		{qdisc.Netem{Rate: mb}, 1000, 1000 * us},
		{qdisc.Netem{Rate: mb}, 0, 0},
		{qdisc.Netem{Rate: 3 * mb}, 1000, 333333},
		{qdisc.Netem{Rate: mb, PacketOverhead: 24}, 1000, 1024 * us},
		{qdisc.Netem{Rate: mb, PacketOverhead: -20}, 1000, 980 * us},
		{qdisc.Netem{Rate: mb, CellSize: 48, CellOverhead: 5}, 48, 53 * us},
		{qdisc.Netem{Rate: mb, CellSize: 48, CellOverhead: 5}, 49, 106 * us},
		{qdisc.Netem{Rate: mb, CellSize: 48, CellOverhead: -8, PacketOverhead: 8}, 41, 80 * us},
		{qdisc.Netem{Rate: qdisc.OrderRate}, 1500, 0},
	} {
		if got := rateOf(tt.n).time(tt.size); got != int64(tt.want) {
			t.Errorf("%+v: %d bytes take %d ns, want %d", tt.n, tt.size, got, tt.want)
		}
	}
}

// Packets of 1000 bytes at 1 us a byte.
func TestRate(t *testing.T) {
	type in struct{ at, due time.Duration }
	for _, tt := range []struct {
		name    string
		n       qdisc.Netem
		packets []in
	}{
		{"one after the other", qdisc.Netem{}, []in{{0, ms}, {0, 2 * ms}, {0, 3 * ms}}},
		{"idle between", qdisc.Netem{}, []in{{0, ms}, {5 * ms, 6 * ms}, {5500 * us, 7 * ms}}},
		{"just gone", qdisc.Netem{}, []in{{0, ms}, {ms, 2 * ms}}},
		// All are delayed together, and waiting counts.
		{"delay", qdisc.Netem{Delay: 10 * ms}, []in{{0, 11 * ms}, {0, 12 * ms}, {500 * us, 13 * ms}, {12500 * us, 23500 * us}}},
		{"reordered take none", qdisc.Netem{Delay: 10 * ms, Reorder: 100, Gap: 2}, []in{{0, 11 * ms}, {0, 0}, {0, 12 * ms}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.n.Rate = 1_000_000
			m := New(tt.n)
			for i, p := range tt.packets {
				v := m.Packet(int64(p.at), 1000, 0, false)
				if v.Count != 1 || v.Copies[0].Due != int64(p.due) {
					t.Errorf("packet %d: %d, leaves at %s, want %s", i, v.Count, time.Duration(v.Copies[0].Due), p.due)
				}
			}
		})
	}
}

// With a rate a jitter does not reorder, and what is dropped takes no time.
func TestRateKeepsOrder(t *testing.T) {
	m := New(qdisc.Netem{Delay: 10 * ms, Jitter: 9 * ms, Rate: 1_000_000, Loss: 30, Duplicate: 10, Seed: 1})
	last, sent := int64(0), 0
	for i := range packets {
		now := int64(i) * int64(300*us)
		v := m.Packet(now, 100, 0, false)
		for _, c := range v.Copies[:v.Count] {
			if sent++; c.Due < last+int64(100*us) || c.Due < now+int64(ms) {
				t.Fatalf("packet %d comes at %d and leaves at %d, the one before at %d", i, now, c.Due, last)
			}
			last = c.Due
		}
	}
	m = New(qdisc.Netem{Rate: 1_000_000, Limit: 1})
	m.Packet(0, 1000, 0, false)
	m.Packet(0, 1000, 1, false) // overflow
	if v := m.Packet(0, 1000, 0, false); v.Copies[0].Due != int64(2*ms) {
		t.Errorf("leaves at %d", v.Copies[0].Due)
	}
}

// What waits when a rate is set leaves first, and what has left is nothing to wait for.
func TestRateFollows(t *testing.T) {
	for now, want := range map[time.Duration]time.Duration{0: 21 * ms, 19 * ms: 21 * ms, 20 * ms: 21 * ms, 30 * ms: 31 * ms} {
		before := New(qdisc.Netem{Delay: 20 * ms})
		before.Packet(0, 1000, 0, false)
		m := New(qdisc.Netem{Rate: 1_000_000})
		m.Follow(before, int64(now))
		if v := m.Packet(int64(now), 1000, 0, false); v.Copies[0].Due != int64(want) {
			t.Errorf("came at %s, leaves at %s, want %s", now, time.Duration(v.Copies[0].Due), want)
		}
	}
}
