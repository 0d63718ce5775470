package report

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"testing"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/kpi"
	"netemd/probe"
)

// TestTraces: the spans of a run say by themselves whether a retry lies in a fault's time: calls,
// attempts and faults are on one clock, also of a fault whose end was not seen.
func TestTraces(t *testing.T) {
	const unix = 1000 * time.Second
	call := func(seq int, at int64, tries ...int64) probe.Sample {
		s := probe.Sample{Seq: seq, StartNS: at * msNS, EndNS: (tries[len(tries)-1] + 5) * msNS, Class: probe.OK}
		for _, begin := range tries {
			s.Attempts = append(s.Attempts, probe.Sample{StartNS: begin * msNS, EndNS: (begin + 5) * msNS, Class: probe.OK})
		}
		s.Attempts[0].Policy = []probe.PolicyEvent{{TimeNS: at * msNS, Policy: "retry", Event: "scheduled", DelayNS: 7}}
		return s
	}
	r := Run{
		Experiment: Experiment{Name: "c5", Started: time.Unix(1000, 0), Cases: []Case{{Name: "all", Probe: probe.KindHTTP, Target: "web", Layer: "direct"}}},
		Observations: experiment.Observations{
			{Case: "all", Phase: kpi.Fault, Repeat: 1, Unix: unix, Samples: []probe.Sample{call(0, 1000, 1000, 1100), call(1, 1500, 1500)}},
			{Case: "all", Phase: kpi.Fault, Repeat: 2, Unix: unix, Samples: []probe.Sample{call(0, 9000, 9000, 9100, 9300)}},
		},
	}
	for _, e := range []experiment.Event{
		{Time: time.Unix(1000, 9e8), Event: "applied", Fault: "f1", Asked: "loss 100% to web"}, {Time: time.Unix(1001, 2e8), Event: "cleared", Fault: "f1"},
		{Time: time.Unix(1008, 0), Event: "applied", Fault: "f2", Asked: "loss 100% to web"},
	} {
		r.Events = append(r.Events, ofFault(e))
	}
	var out, again bytes.Buffer
	if err := writeTraces(&out, r); err != nil {
		t.Fatal(err)
	}
	if err := writeTraces(&again, r); err != nil || out.String() != again.String() {
		t.Errorf("not the same twice: %v", err)
	}
	type times struct{ begin, end int64 }
	var faults, retries []times
	ids, parents := map[string]bool{}, map[string]string{}
	for line := range bytes.Lines(out.Bytes()) {
		var d tracesData
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatal(err)
		}
		for _, s := range d.ResourceSpans[0].ScopeSpans[0].Spans {
			begin, err := strconv.ParseInt(s.Start, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			end, err := strconv.ParseInt(s.End, 10, 64)
			if err != nil || end < begin {
				t.Fatalf("%s to %s: %v", s.Start, s.End, err)
			}
			if key := s.TraceID + s.SpanID; ids[key] || len(s.TraceID) != 32 || len(s.SpanID) != 16 {
				t.Errorf("id %s", key)
			} else {
				ids[key] = true
			}
			switch s.Name {
			case "fault: loss 100% to web":
				faults = append(faults, times{begin, end})
			case "http attempt":
				if parents[s.ParentID] != s.TraceID {
					t.Errorf("attempt %s has no call", s.SpanID)
				}
				if slices.ContainsFunc(s.Attributes, func(a attribute) bool { return a.Key == "http.request.resend_count" }) {
					retries = append(retries, times{begin, end})
				}
			case "http call":
				parents[s.SpanID] = s.TraceID
			}
		}
	}
	if len(faults) != 2 || len(retries) != 3 || faults[0] != (times{1000.9e9, 1001.2e9}) {
		t.Fatalf("faults %v, retries %v", faults, retries)
	}
	for _, x := range retries {
		if !slices.ContainsFunc(faults, func(f times) bool { return f.begin <= x.begin && x.begin <= f.end }) {
			t.Errorf("the retry at %d is in no fault", x.begin)
		}
	}
}
