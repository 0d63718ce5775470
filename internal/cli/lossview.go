package cli

import (
	"fmt"
	"math"
	"slices"

	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/report"
	"netemd/qdisc"
)

// measuredLoss is the share that a fault with a loss lost, in percent; nil when
// nothing was counted. With ECN some packets are marked instead, so that it says
// nothing.
func measuredLoss(f fault.Fault) *float64 {
	p, c := f.Spec.Packet, f.Counters
	counted := !slices.Contains(f.CountersMissing, "lost") && !slices.Contains(f.CountersMissing, "seen")
	if p == nil || f.Spec.PacketFrom != nil && f.Spec.PacketFrom.LossStatistics() != p.LossStatistics() || p.ECN || p.LossStatistics().Share == 0 || !counted || c.Seen == 0 || c.Lost > c.Seen {
		return nil
	}
	return new(100 * float64(c.Lost) / float64(c.Seen))
}

// lossText puts what was lost beside what was asked for, "" when there is nothing to
// say.
func lossText(f fault.Fault) string {
	measured := measuredLoss(f)
	if measured == nil {
		return ""
	}
	p := f.Spec.Packet
	if p.Loss > 0 {
		l := experiment.MeasureLoss(p.Loss, p.LossCorrelation, f.Counters.Seen, f.Counters.Lost)
		return report.LossLine(&experiment.Row{Loss: &l})
	}
	s := p.LossStatistics()
	asked := fmt.Sprintf("the model loses %s%% on average", number(float64(s.Share)))
	if s.MeanBurst > 0 && !math.IsInf(s.MeanBurst, 0) {
		asked += fmt.Sprintf(", in bursts of %s packets", number(s.MeanBurst))
	}
	return fmt.Sprintf("%s; measured %.2f%% (%d of %d packets); judge it with: netemctl verify %s",
		asked, *measured, f.Counters.Lost, f.Counters.Seen, f.ID)
}

// lossModel reports whether n loses by a model with a memory.
func lossModel(n qdisc.Netem) bool {
	noState, noBursts := qdisc.LossState{}, qdisc.GilbertElliott{}
	return n.LossState != noState || n.GilbertElliott != noBursts
}
