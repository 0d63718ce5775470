package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"netemd/internal/experiment"
	"netemd/probe"
	"netemd/qdisc"
)

// longTail is the ratio p99/p50 from which a row has a long tail: a symmetric
// spread around the median cannot reach it.
const longTail = 3

// Explain says in plain sentences what a comparison shows, from its numbers
// alone.
func Explain(c experiment.Comparison) []string {
	if !c.Conclusive {
		return nil
	}
	var said []string
	for _, s := range []string{tail(c), why(c), proxy(c)} {
		if s != "" {
			said = append(said, s)
		}
	}
	return said
}

// tail says what the packet fault did to the median and to the slowest calls.
func tail(c experiment.Comparison) string {
	none, packet := c.Row(experiment.LayerNone), c.Row(experiment.LayerPacket)
	if none == nil || packet == nil || none.P50 == nil {
		return ""
	}
	if packet.P50 == nil {
		return fmt.Sprintf("With %s no call of %d succeeded.", c.Asked, packet.Count)
	}
	s := fmt.Sprintf("With %s half of the calls took %s or more (%s without it)", c.Asked, Time(packet.P50), Time(none.P50))
	switch ratio := *packet.P99 / *packet.P50; {
	case ratio >= longTail:
		s += fmt.Sprintf(", and one in a hundred %s or more: %s the median.", Time(packet.P99), times(ratio))
	default:
		s += fmt.Sprintf(", and one in a hundred %s or more, not far from the median.", Time(packet.P99))
	}
	if failed := packet.Count - packet.OK; failed > 0 {
		s += fmt.Sprintf(" %s of %d failed: %s.", calls(failed), packet.Count, Errors(packet.Summary))
	}
	return s
}

// reasons are the causes in words.
var reasons = map[probe.Cause]string{
	probe.SYNRetransmit:  "a lost connection request, sent again after 1 s",
	probe.RTO:            "the retransmission timeout, 200 ms at least and doubling",
	probe.TLP:            "a tail loss probe, sent when an answer stays away",
	probe.FastRetransmit: "a fast retransmission",
	probe.Neighbour:      "address resolution",
	probe.Dropped:        "data that the fault dropped",
	probe.Queueing:       "what was held back on the way",
	probe.ServerDown:     "a server whose processes a fault had stopped or ended",
	probe.Unknown:        "no known cause",
}

// why says what the slow calls waited for.
func why(c experiment.Comparison) string {
	packet := c.Row(experiment.LayerPacket)
	if packet == nil {
		return ""
	}
	slow := Slow(packet.Summary)
	if slow == 0 {
		return ""
	}
	var parts []string
	for _, cause := range CauseOrder {
		if n := packet.Causes[cause]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d for %s", n, reasons[cause]))
		}
	}
	return fmt.Sprintf("The kernel's own account of the %d slow calls (over %s): %s.",
		slow, Time(&packet.ThresholdMS), strings.Join(parts, "; "))
}

// proxy sets the proxy's latency beside the packets' loss.
func proxy(c experiment.Comparison) string {
	packet, lat := c.Row(experiment.LayerPacket), c.Row(experiment.LayerProxyLatency)
	if packet == nil || lat == nil || packet.P99 == nil || lat.P99 == nil {
		return ""
	}
	s := fmt.Sprintf("A proxy with latency of the same median (%s) ends at p99 %s", Time(lat.P50), Time(lat.P99))
	if *packet.P99 >= 2**lat.P99 {
		return s + fmt.Sprintf(", where the packet fault ends at %s: it makes every call late by about the same time, but it "+
			"never loses a segment (%d sent again there, %d under the packet fault), so it has no tail.",
			Time(packet.P99), resent(lat), resent(packet))
	}
	return s + fmt.Sprintf(", much as the packet layer's %s: for this fault a proxy shows about the same.", Time(packet.P99))
}

// resent is the number of segments that a kernel sent again in a row's calls.
func resent(r *experiment.Row) int {
	n := 0
	for _, k := range r.Retransmissions {
		n += k
	}
	return n
}

func calls(n int) string {
	if n == 1 {
		return "1 call"
	}
	return fmt.Sprintf("%d calls", n)
}

func times(ratio float64) string {
	if ratio < 10 {
		return fmt.Sprintf("%.1f times", ratio)
	}
	return fmt.Sprintf("%.0f times", math.Round(ratio))
}

// LossLine says the loss that was asked for beside the one that was measured, ""
// for a row without a loss. There is a verdict only on draws that do not depend on
// each other.
func LossLine(r *experiment.Row) string {
	if r == nil || r.Loss == nil {
		return ""
	}
	asked := fmt.Sprintf("asked for %v loss", r.Asked)
	if r.Correlation > 0 {
		asked += fmt.Sprintf(" with %v correlation", r.Correlation)
	}
	if r.Measured == nil {
		return asked + "; nothing was measured, for no packet passed the fault"
	}
	measured := fmt.Sprintf("measured %.2f%% (%d of %d packets", *r.Measured, r.Lost, r.Seen)
	switch {
	case r.Correlation >= 100:
		return asked + ", which repeats its first draw: all packets or none; " + measured + ")"
	case r.Correlation > 0:
		return fmt.Sprintf("%s, which netem's generator makes about %v; %s; no interval, for each draw depends on the one before)",
			asked, about(r.Expected), measured)
	}
	verdict := "as asked"
	if !r.AsAsked() {
		verdict = "not as asked"
	}
	return fmt.Sprintf("%s; %s; %v%% interval %.2f%% to %.2f%%): %s", asked, measured, experiment.LossLevel, *r.Low, *r.High, verdict)
}

// about is a share with two digits.
func about(p qdisc.Percent) qdisc.Percent {
	v, err := strconv.ParseFloat(strconv.FormatFloat(float64(p), 'g', 2, 64), 64)
	if err != nil {
		return p
	}
	return qdisc.Percent(v)
}
