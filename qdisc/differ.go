package qdisc

import "math"

// Differences names the fields in which the impairment that the kernel gave back
// is not the one that was asked for, within the encoding's resolution (a 2^32nd
// of a share). The distributions are not compared, since the kernel never dumps
// them; nor is the seed when none was asked for, since it then draws its own.
func (n Netem) Differences(got Netem) []string {
	n, got = n.Normalize(), got.Normalize()
	var fields []string
	differ := func(name string, same bool) {
		if !same {
			fields = append(fields, name)
		}
	}
	share := func(name string, want, got Percent) { differ(name, want.Fraction() == got.Fraction()) }
	differ("delay", n.Delay == got.Delay)
	differ("delay.jitter", n.Jitter == got.Jitter)
	share("delay.correlation", n.DelayCorrelation, got.DelayCorrelation)
	share("loss", n.Loss, got.Loss)
	share("loss.correlation", n.LossCorrelation, got.LossCorrelation)
	s, t := n.LossState, got.LossState
	share("loss.state.p13", s.P13, t.P13)
	share("loss.state.p31", s.P31, t.P31)
	share("loss.state.p32", s.P32, t.P32)
	share("loss.state.p23", s.P23, t.P23)
	share("loss.state.p14", s.P14, t.P14)
	g, h := n.GilbertElliott, got.GilbertElliott
	share("loss.gemodel.p", g.P, h.P)
	share("loss.gemodel.r", g.R, h.R)
	share("loss.gemodel.loss_bad", g.LossBad, h.LossBad)
	share("loss.gemodel.loss_good", g.LossGood, h.LossGood)
	differ("ecn", n.ECN == got.ECN)
	share("duplicate", n.Duplicate, got.Duplicate)
	share("duplicate.correlation", n.DuplicateCorrelation, got.DuplicateCorrelation)
	share("reorder", n.Reorder, got.Reorder)
	share("reorder.correlation", n.ReorderCorrelation, got.ReorderCorrelation)
	differ("reorder.gap", n.Gap == got.Gap)
	share("corrupt", n.Corrupt, got.Corrupt)
	share("corrupt.correlation", n.CorruptCorrelation, got.CorruptCorrelation)
	differ("rate", n.Rate == got.Rate)
	differ("rate.packet_overhead", n.PacketOverhead == got.PacketOverhead)
	differ("rate.cell_size", n.CellSize == got.CellSize)
	differ("rate.cell_overhead", n.CellOverhead == got.CellOverhead)
	differ("slot.min_delay", n.Slot.MinDelay == got.Slot.MinDelay)
	differ("slot.max_delay", n.Slot.MaxDelay == got.Slot.MaxDelay)
	differ("slot.delay", n.Slot.Delay == got.Slot.Delay)
	differ("slot.jitter", n.Slot.Jitter == got.Slot.Jitter)
	differ("slot.packets", bound(uint64(n.Slot.Packets)) == bound(uint64(got.Slot.Packets)))
	differ("slot.bytes", bound(uint64(n.Slot.Bytes)) == bound(uint64(got.Slot.Bytes)))
	differ("limit", n.Limit == got.Limit)
	differ("seed", n.Seed == 0 || n.Seed == got.Seed)
	return fields
}

// bound is a bound of a slot as the kernel dumps it: its largest number is none.
func bound(v uint64) uint64 {
	if v == math.MaxInt32 {
		return 0
	}
	return v
}
