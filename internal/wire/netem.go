package wire

import (
	"encoding/binary"
	"time"

	netemv1 "netemd/api/netem/v1"
	"netemd/qdisc"
)

// The parts of an impairment that are messages of their own. nil stays nil: not
// given.

func lossState(s *qdisc.LossState) *netemv1.LossState {
	if s == nil {
		return nil
	}
	return &netemv1.LossState{
		P13Percent: float64(s.P13), P31Percent: float64(s.P31), P32Percent: float64(s.P32),
		P23Percent: float64(s.P23), P14Percent: float64(s.P14),
	}
}

func lossStateOf(m *netemv1.LossState) *qdisc.LossState {
	if m == nil {
		return nil
	}
	return &qdisc.LossState{
		P13: qdisc.Percent(m.GetP13Percent()), P31: qdisc.Percent(m.GetP31Percent()), P32: qdisc.Percent(m.GetP32Percent()),
		P23: qdisc.Percent(m.GetP23Percent()), P14: qdisc.Percent(m.GetP14Percent()),
	}
}

func gilbertElliott(g *qdisc.GilbertElliott) *netemv1.GilbertElliott {
	if g == nil {
		return nil
	}
	return &netemv1.GilbertElliott{
		PPercent: float64(g.P), RPercent: float64(g.R), LossBadPercent: float64(g.LossBad), LossGoodPercent: float64(g.LossGood),
	}
}

func gilbertElliottOf(m *netemv1.GilbertElliott) *qdisc.GilbertElliott {
	if m == nil {
		return nil
	}
	return &qdisc.GilbertElliott{
		P: qdisc.Percent(m.GetPPercent()), R: qdisc.Percent(m.GetRPercent()),
		LossBad: qdisc.Percent(m.GetLossBadPercent()), LossGood: qdisc.Percent(m.GetLossGoodPercent()),
	}
}

func slot(s *qdisc.Slot) *netemv1.Slot {
	if s == nil {
		return nil
	}
	return &netemv1.Slot{
		MinDelayNs: int64(s.MinDelay), MaxDelayNs: int64(s.MaxDelay),
		Distribution: string(s.Distribution), DelayNs: int64(s.Delay), JitterNs: int64(s.Jitter), Samples: samples(s.Samples),
		Packets: s.Packets, Bytes: uint64(s.Bytes),
	}
}

func slotOf(m *netemv1.Slot) *qdisc.Slot {
	if m == nil {
		return nil
	}
	return &qdisc.Slot{
		MinDelay: time.Duration(m.GetMinDelayNs()), MaxDelay: time.Duration(m.GetMaxDelayNs()),
		Distribution: qdisc.Distribution(m.GetDistribution()), Delay: time.Duration(m.GetDelayNs()), Jitter: time.Duration(m.GetJitterNs()),
		Samples: samplesOf(m.GetSamples()), Packets: m.GetPackets(), Bytes: qdisc.Bytes(m.GetBytes()),
	}
}

// samples are little-endian on the wire and in the machine's order in the domain;
// nil for none.
func samples(s qdisc.Samples) []byte {
	if s == "" {
		return nil
	}
	return reorder([]byte(s), binary.NativeEndian, binary.LittleEndian)
}

func samplesOf(b []byte) qdisc.Samples {
	return qdisc.Samples(reorder(b, binary.LittleEndian, binary.NativeEndian))
}

// reorder keeps an odd last byte, which validation refuses.
func reorder(b []byte, from, to binary.ByteOrder) []byte {
	out := append([]byte(nil), b...)
	for i := 0; i+1 < len(b); i += 2 {
		to.PutUint16(out[i:], from.Uint16(b[i:]))
	}
	return out
}
