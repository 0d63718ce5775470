package cli

import (
	"netemd/qdisc"
)

// packetView is an impairment as JSON: every field, also what is 0; null for a model
// that is not given.
type packetView struct {
	LossPercent                 float64             `json:"loss_percent"`
	LossCorrelationPercent      float64             `json:"loss_correlation_percent"`
	LossState                   *lossStateView      `json:"loss_state"`
	GilbertElliott              *gilbertElliottView `json:"gilbert_elliott"`
	ECN                         bool                `json:"ecn"`
	DelayNS                     int64               `json:"delay_ns"`
	JitterNS                    int64               `json:"jitter_ns"`
	DelayCorrelationPercent     float64             `json:"delay_correlation_percent"`
	Distribution                string              `json:"distribution"`
	ReorderPercent              float64             `json:"reorder_percent"`
	ReorderCorrelationPercent   float64             `json:"reorder_correlation_percent"`
	GapPackets                  uint32              `json:"gap_packets"`
	DuplicatePercent            float64             `json:"duplicate_percent"`
	DuplicateCorrelationPercent float64             `json:"duplicate_correlation_percent"`
	CorruptPercent              float64             `json:"corrupt_percent"`
	CorruptCorrelationPercent   float64             `json:"corrupt_correlation_percent"`
	RateBitPerSecond            uint64              `json:"rate_bit_per_second"`
	PacketOverheadBytes         int32               `json:"packet_overhead_bytes"`
	CellSizeBytes               uint32              `json:"cell_size_bytes"`
	CellOverheadBytes           int32               `json:"cell_overhead_bytes"`
	Slot                        *slotView           `json:"slot"`
	LimitPackets                uint32              `json:"limit_packets"`
	Seed                        uint64              `json:"seed"`
}

type lossStateView struct {
	P13 float64 `json:"p13_percent"`
	P31 float64 `json:"p31_percent"`
	P32 float64 `json:"p32_percent"`
	P23 float64 `json:"p23_percent"`
	P14 float64 `json:"p14_percent"`
}

type gilbertElliottView struct {
	P        float64 `json:"p_percent"`
	R        float64 `json:"r_percent"`
	LossBad  float64 `json:"loss_bad_percent"`
	LossGood float64 `json:"loss_good_percent"`
}

type slotView struct {
	MinDelayNS   int64  `json:"min_delay_ns"`
	MaxDelayNS   int64  `json:"max_delay_ns"`
	Distribution string `json:"distribution"`
	DelayNS      int64  `json:"delay_ns"`
	JitterNS     int64  `json:"jitter_ns"`
	Packets      uint32 `json:"packets"`
	Bytes        uint64 `json:"bytes"`
}

func viewPacket(n qdisc.Netem) *packetView {
	n = n.Normalize()
	shape := n.Distribution
	if shape == "" {
		shape = qdisc.Uniform
	}
	return &packetView{
		LossPercent: float64(n.Loss), LossCorrelationPercent: float64(n.LossCorrelation),
		LossState: viewLossState(n.LossState), GilbertElliott: viewGilbertElliott(n.GilbertElliott), ECN: n.ECN,
		DelayNS: int64(n.Delay), JitterNS: int64(n.Jitter), DelayCorrelationPercent: float64(n.DelayCorrelation),
		Distribution:   string(shape),
		ReorderPercent: float64(n.Reorder), ReorderCorrelationPercent: float64(n.ReorderCorrelation), GapPackets: n.Gap,
		DuplicatePercent: float64(n.Duplicate), DuplicateCorrelationPercent: float64(n.DuplicateCorrelation),
		CorruptPercent: float64(n.Corrupt), CorruptCorrelationPercent: float64(n.CorruptCorrelation),
		RateBitPerSecond: uint64(n.Rate) * 8, PacketOverheadBytes: n.PacketOverhead, CellSizeBytes: n.CellSize, CellOverheadBytes: n.CellOverhead,
		Slot: viewSlot(n.Slot), LimitPackets: n.Limit, Seed: n.Seed,
	}
}

func viewLossState(l qdisc.LossState) *lossStateView {
	if l == (qdisc.LossState{}) {
		return nil
	}
	return &lossStateView{float64(l.P13), float64(l.P31), float64(l.P32), float64(l.P23), float64(l.P14)}
}

func viewGilbertElliott(g qdisc.GilbertElliott) *gilbertElliottView {
	if g == (qdisc.GilbertElliott{}) {
		return nil
	}
	bad := g.LossBad
	if bad == 0 {
		bad = 100
	}
	return &gilbertElliottView{float64(g.P), float64(g.R), float64(bad), float64(g.LossGood)}
}

func viewSlot(s qdisc.Slot) *slotView {
	if s == (qdisc.Slot{}) {
		return nil
	}
	return &slotView{
		int64(s.MinDelay), int64(max(s.MinDelay, s.MaxDelay)), string(s.Distribution), int64(s.Delay), int64(s.Jitter), s.Packets, uint64(s.Bytes),
	}
}
