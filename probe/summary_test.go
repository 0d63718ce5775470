package probe

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func took(d time.Duration, class Class, cause Cause, events ...Cause) Sample {
	s := Sample{StartNS: 1, EndNS: 1 + int64(d), Class: class, Cause: cause}
	for _, e := range events {
		s.Events = append(s.Events, Retransmission{Cause: e})
	}
	return s
}

func TestSummarize(t *testing.T) {
	f := func(v float64) *float64 { return &v }
	var hundred []Sample // 100 ms down to 1 ms, so order must not matter
	for i := range 100 {
		hundred = append(hundred, took(time.Duration(100-i)*time.Millisecond, OK, ""))
	}
	tests := []struct {
		name    string
		samples []Sample
		want    Summary
	}{
		{"none", nil, Summary{}},
		{"one", []Sample{took(3*time.Millisecond, OK, "")},
			Summary{Count: 1, OK: 1, P50: f(3), P90: f(3), P99: f(3), Max: f(3)}},
		{"even: the lower middle", []Sample{took(2*time.Millisecond, OK, ""), took(1*time.Millisecond, OK, "")},
			Summary{Count: 2, OK: 2, P50: f(1), P90: f(2), P99: f(2), Max: f(2)}},
		{"hundred", hundred, Summary{Count: 100, OK: 100, P50: f(50), P90: f(90), P99: f(99), Max: f(100)}},
		{"only failures", []Sample{took(time.Second, Timeout, SYNRetransmit, SYNRetransmit), took(0, Refused, "")},
			Summary{Count: 2, Errors: map[Class]int{Timeout: 1, Refused: 1},
				Failed: map[Class]PhaseSummary{Timeout: {1, f(1000), f(1000), f(1000)}, Refused: {1, f(0), f(0), f(0)}}, Causes: map[Cause]int{SYNRetransmit: 1},
				Retransmissions: map[Cause]int{SYNRetransmit: 1}, Explained: f(100)}},
		{"an event of the goodbye", []Sample{{EndNS: ms, Class: OK, Events: []Retransmission{{TimeNS: 2 * ms, Cause: TLP}}}},
			Summary{Count: 1, OK: 1, P50: f(1), P90: f(1), P99: f(1), Max: f(1)}},
		{"mixed", []Sample{
			took(time.Millisecond, OK, "", TLP),
			took(time.Second, OK, RTO, TLP, RTO, RTO),
			took(time.Second, OK, Unknown),
			took(5*time.Second, Timeout, Unknown),
			took(4*time.Second, OK, Queueing),
		}, Summary{Count: 5, OK: 4, Errors: map[Class]int{Timeout: 1}, Failed: map[Class]PhaseSummary{Timeout: {1, f(5000), f(5000), f(5000)}}, P50: f(1000), P90: f(4000), P99: f(4000), Max: f(4000),
			Causes: map[Cause]int{RTO: 1, Unknown: 2, Queueing: 1}, Explained: f(50),
			Retransmissions: map[Cause]int{TLP: 2, RTO: 2}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := test.want
			w.Target, w.Layer, w.Evidence, w.ThresholdMS = "pg", "none", "seen", 150
			// what the table does not say follows from what it says, or is tested below
			got := Summarize("pg", "none", test.samples, "seen")
			w.P95, w.P999, w.Attempts, w.AttemptsPerCall = got.P95, got.P999, w.Count, got.AttemptsPerCall
			w.Service = Quantiles{P50: w.P50, P90: w.P90, P95: w.P95, P99: w.P99, P999: w.P999, Max: w.Max}
			w.Percentiles = PercentilesExact
			if w.Errors == nil {
				w.Errors = map[Class]int{}
			}
			if w.Causes == nil {
				w.Causes = map[Cause]int{}
			}
			if w.Retransmissions == nil {
				w.Retransmissions = map[Cause]int{}
			}
			if d := cmp.Diff(w, got); d != "" {
				t.Errorf("summary (-want +got):\n%s", d)
			}
		})
	}
}

// TestSummaryJSON holds the form that reports and scripts read: null where there
// is no value, objects and not null where there is no entry.
func TestSummaryJSON(t *testing.T) {
	got, err := json.Marshal(Summarize("pg", "direct", nil, EvidenceTraced))
	if err != nil {
		t.Fatal(err)
	}
	quantiles := `"p50_ms":null,"p90_ms":null,"p95_ms":null,"p99_ms":null,"p99_9_ms":null,"max_ms":null`
	want := `{"target":"pg","layer":"direct","count":0,"ok":0,"errors":{},` + quantiles + `,"service":{` + quantiles + `},` +
		`"percentiles":"calls that the peer answered well; nearest rank","causes":{},"slow_threshold_ms":150,"explained_percent":null,"retransmissions":{},` +
		`"evidence":"tp_btf, both ends","warmup":0,"attempts":0,"attempts_per_call":null,"rejected":0,"degraded":0,"turns_per_call":null}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
