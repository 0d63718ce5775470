package experiment

import (
	"math"
	"slices"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/probe"
)

const msNS = int64(time.Millisecond)

// at is a call that begins at a time in ms and takes some.
func at(begin, took int64, class probe.Class, attempts ...probe.Sample) probe.Sample {
	s := probe.Sample{StartNS: 1 + begin*msNS, EndNS: 1 + (begin+took)*msNS, Class: class, Attempts: attempts}
	if took > 150 {
		s.Cause = probe.RTO
	}
	return s
}

func observed() Observations {
	asked := &fault.Counters{Seen: 1000, Lost: 205}
	none := math.NaN()
	retried := at(0, 400, probe.OK, at(0, 10, probe.Reset), at(110, 10, probe.Reset), at(115, 10, probe.OK))
	rejected := probe.Sample{StartNS: 5, EndNS: 6, Class: probe.Rejected}
	begin := int64(1)
	return Observations{
		{Case: "a", Phase: kpi.Control, Begin: begin, End: begin + 1000*msNS, Samples: []probe.Sample{at(0, 2, probe.OK), at(500, 4, probe.OK)}, Asked: none},
		{Case: "a", Phase: kpi.Fault, Repeat: 1, Begin: begin, End: begin + 1000*msNS, Counters: asked, Asked: .2,
			Samples: []probe.Sample{retried, at(10, 300, probe.Timeout), at(900, 7, probe.OK), rejected}},
		{Case: "a", Phase: kpi.Fault, Repeat: 2, Begin: begin, End: begin + 1000*msNS, Counters: asked, Asked: .2,
			Samples: []probe.Sample{at(0, 9, probe.OK), at(20, 500, probe.Timeout)}},
		{Case: "a", Phase: kpi.Recovery, Repeat: 1, Begin: begin, End: begin + 1000*msNS, Asked: none,
			Samples: []probe.Sample{at(0, 50, probe.Timeout), at(60, 5, probe.OK)}},
		{Case: "a", Phase: kpi.Recovery, Repeat: 2, Begin: begin, End: begin + 1000*msNS, Asked: none, Samples: []probe.Sample{at(1, 5, probe.OK)}},
		{Case: "b", Phase: kpi.Fault, Repeat: 1, Void: "the fault was lost"},
	}
}

func TestMeasured(t *testing.T) {
	o := observed()
	for text, want := range map[string]kpi.Verdict{
		"calls == 6 && ok == 3 && failed == 3 && rejected == 1 of a":               kpi.Passed,
		"calls == 4 in every repeat of a":                                          kpi.Failed,
		"calls == 2 in control of a":                                               kpi.Passed,
		"success == 50% of a":                                                      kpi.Passed,
		"attempts == 7 && retries == 2 of a":                                       kpi.Passed,
		"errors[timeout] == 2 && errors[reset] == 0 && errors[rejected] == 1 of a": kpi.Passed,
		"p50_ms == 9 && max_ms == 400 of a":                                        kpi.Passed,
		"p50_ms(a, control) == 2":                                                  kpi.Passed,
		"failed_p50_ms == 300 && failed_max_ms == 500 of a":                        kpi.Passed,
		"slow == 3 && causes[rto] == 3 && explained == 100% of a":                  kpi.Passed,
		"calls == 1 of a after 800ms":                                              kpi.Passed,
		"calls == 5 of a within 800ms":                                             kpi.Passed,
		"attempts_peak[100ms] == 2 of a":                                           kpi.Passed, // 2 in each
		"attempts_peak[1s] == 3.5 of a":                                            kpi.Passed, // the median of 5 and 2
		"retries_peak[5ms] == 0.5 of a":                                            kpi.Passed, // the second one begins 5 ms later
		"retries_peak[6ms] == 1 of a":                                              kpi.Passed,
		"rejected_max_ms < 1 of a":                                                 kpi.Passed,
		"retries_peak[100ms] == 1 of a":                                            kpi.Passed, // of 2 and 0
		"retries_mean[5ms] == 0.5 of a":                                            kpi.Passed, // 2 within 5 ms, and none
		"recovery_ms == 65 in recovery of a":                                       kpi.Passed,
		"recovery_ms == 65 in recovery of a within 10ms":                           kpi.Inconclusive, // nothing good in the first
		"recovery_ms <= 5 in recovery of a within 10ms":                            kpi.Failed,
		"asked == measured && packets == 2000 of a":                                kpi.Passed,
		"asked == measured in control of a":                                        kpi.Inconclusive,
		"throughput == 1.5 of a":                                                   kpi.Passed,
		"turns > 0 of a":                                                           kpi.Inconclusive,
		"events[breaker.opened] == 0 of a":                                         kpi.Passed,
		"calls > 0 of b":                                                           kpi.Inconclusive,
		"calls > 0 in control of b":                                                kpi.Inconclusive,
		"server[hits] > 0 of a":                                                    kpi.Inconclusive,
	} {
		k, err := kpi.Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		got := k.Judge(newNumbers(o).in(together))
		if k.Every {
			for repeat := 1; repeat <= 2 && got.Verdict != kpi.Failed; repeat++ {
				got = k.Judge(newNumbers(o).in(repeat))
			}
		}
		if got.Verdict != want {
			t.Errorf("%s: %+v, want %s", text, got, want)
		}
	}
}

// TestEveryMetric asks for each number that a KPI may name.
func TestEveryMetric(t *testing.T) {
	kinds := map[string]string{"": "", "class": "timeout", "width": "100ms", "part": "connect", "cause": "rto", "retry": "1", "event": "retry.scheduled", "name": "TestPay", "counter": "hits"}
	for _, m := range kpi.Metrics {
		kind, ok := kinds[m.Kinds]
		if !ok {
			t.Errorf("%s: no kind %s", m.Name, m.Kinds)
		}
		v, err := newNumbers(observed()).in(together)(kpi.Ref{Metric: m.Name, Kind: kind, Case: "a", Phase: kpi.Fault})
		if slices.Contains(kpi.OfCommands, m.Name) {
			continue // of phases that are a command: TestCommandNumbers
		}
		if err != nil && m.Name != "turns" && m.Name != "dispersion" && m.Name != "phase_p50_ms" && m.Name != "server" {
			t.Errorf("%s: %v", m.Name, err)
		}
		if err == nil && m.Rate != (v.Of > 0) && m.Name != "asked" {
			t.Errorf("%s: %+v", m.Name, v)
		}
	}
}
