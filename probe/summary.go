package probe

import (
	"math"
	"slices"
	"time"
)

// The two kinds of evidence that a Summary can rest on.
const (
	EvidenceTraced   = "tp_btf, both ends"
	EvidenceCounters = "TCP_INFO and namespace counters (TLP unknown)"
)

// Summarize condenses samples that Attribute has seen. Percentiles are nearest
// rank over the durations of the successful calls: the smallest duration that at
// least p % of them do not exceed, so it is always one that was measured. The
// threshold is SlowThreshold; who attributed with another one sets ThresholdMS.
func Summarize(target, layer string, samples []Sample, evidence string) Summary {
	s := Summary{
		Target:          target,
		Layer:           layer,
		Count:           len(samples),
		Errors:          map[Class]int{},
		Causes:          map[Cause]int{},
		ThresholdMS:     milliseconds(SlowThreshold),
		Retransmissions: map[Cause]int{},
		Evidence:        evidence,
	}
	var good []time.Duration
	slow := 0
	for _, x := range samples {
		if x.Class == OK {
			good = append(good, x.Duration())
		} else {
			s.Errors[x.Class]++
		}
		if x.Cause != "" {
			slow++
			s.Causes[x.Cause]++
		}
		for _, e := range x.Events {
			if e.TimeNS <= x.EndNS { // later ones belong to the goodbye
				s.Retransmissions[e.Cause]++
			}
		}
	}
	s.OK = len(good)
	slices.Sort(good)
	s.P50, s.P90, s.P99 = percentile(good, 50), percentile(good, 90), percentile(good, 99)
	s.Max = percentile(good, 100)
	if slow > 0 {
		share := 100 * float64(slow-s.Causes[Unknown]) / float64(slow)
		s.Explained = &share
	}
	return s
}

// percentile is the nearest rank in sorted; nil without a value.
func percentile(sorted []time.Duration, p int) *float64 {
	if len(sorted) == 0 {
		return nil
	}
	rank := int(math.Ceil(float64(p*len(sorted)) / 100))
	v := milliseconds(sorted[max(rank, 1)-1])
	return &v
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
