package schedule

import (
	"math"
	"time"

	"netemd/qdisc"
)

// rampAt is what a ramp of n changes has at one of them: the first is its beginning, the last
// its end.
func (s Step) rampAt(change, n int) Impairment {
	share := 1.0
	if n > 1 {
		share = float64(change) / float64(n-1)
	}
	end := s.Ramp.To
	i := Impairment{Packet: mix(s.Packet, end.Packet, share)}
	if s.PacketFrom != nil || end.PacketFrom != nil {
		i.PacketFrom = new(mix(s.Back(), end.Back(), share))
	}
	return i
}

// mix is what lies between two impairments: numbers that change evenly, and what is none,
// such as a shape, from the one that has it.
func mix(a, b qdisc.Netem, share float64) qdisc.Netem {
	switch share { // as they were said
	case 0:
		return a
	case 1:
		return b
	}
	n := a.Fill(b)
	if a.Jitter == 0 {
		n.Distribution, n.Samples = b.Distribution, b.Samples
	}
	n.Delay, n.Jitter = duration(a.Delay, b.Delay, share), duration(a.Jitter, b.Jitter, share)
	for _, p := range []struct{ dst, a, b *qdisc.Percent }{
		{&n.DelayCorrelation, &a.DelayCorrelation, &b.DelayCorrelation},
		{&n.Loss, &a.Loss, &b.Loss}, {&n.LossCorrelation, &a.LossCorrelation, &b.LossCorrelation},
		{&n.Duplicate, &a.Duplicate, &b.Duplicate}, {&n.DuplicateCorrelation, &a.DuplicateCorrelation, &b.DuplicateCorrelation},
		{&n.Reorder, &a.Reorder, &b.Reorder}, {&n.ReorderCorrelation, &a.ReorderCorrelation, &b.ReorderCorrelation},
		{&n.Corrupt, &a.Corrupt, &b.Corrupt}, {&n.CorruptCorrelation, &a.CorruptCorrelation, &b.CorruptCorrelation},
	} {
		*p.dst = percent(*p.a, *p.b, share)
	}
	n.Rate = rate(a.Rate, b.Rate, share)
	return n
}

// between goes evenly from a to b.
func between[T ~int64 | ~uint64 | ~float64](a, b T, share float64) float64 {
	return float64(a) + (float64(b)-float64(a))*share
}

// What lies between is rounded to what people read: a thousandth of the digits that matter.

func duration(a, b time.Duration, share float64) time.Duration {
	return time.Duration(between(a, b, share)).Round(time.Microsecond)
}

func percent(a, b qdisc.Percent, share float64) qdisc.Percent {
	const digits = 1e4
	exact := between(a, b, share)
	if rounded := math.Round(exact*digits) / digits; rounded > 0 {
		return qdisc.Percent(rounded)
	}
	return qdisc.Percent(exact)
}

func rate(a, b qdisc.Rate, share float64) qdisc.Rate {
	const kbit = 1000 / 8
	exact := between(a, b, share)
	if exact > 100*kbit {
		exact = math.Round(exact/kbit) * kbit
	}
	return qdisc.Rate(math.Round(exact))
}
