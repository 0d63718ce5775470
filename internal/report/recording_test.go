package report

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	metricsv1 "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"netemd/probe"
)

// recorded are a warm-up, a call, a slow one with attempts, and one that was rejected.
func recorded() []probe.Sample {
	ms := int64(time.Millisecond)
	local, remote := netip.MustParseAddrPort("192.0.2.1:5"), netip.MustParseAddrPort("192.0.2.2:80")
	return []probe.Sample{
		{Seq: 0, Warmup: true, StartNS: 1 * ms, EndNS: 900 * ms, Class: probe.OK},
		{Seq: 1, StartNS: 10 * ms, EndNS: 12 * ms, Class: probe.OK, Local: local, Remote: remote, Phases: []probe.Phase{{Name: "connect", NS: ms}}},
		{
			Seq: 2, DueNS: 18 * ms, StartNS: 20 * ms, EndNS: 620 * ms, Class: probe.Timeout, Error: "i/o \"timeout\"", Cause: probe.RTO,
			Attempts: []probe.Sample{
				{Seq: 2, StartNS: 21 * ms, EndNS: 320 * ms, Class: probe.Timeout, Events: []probe.Retransmission{{TimeNS: 220 * ms, Cause: probe.RTO}}},
				{Seq: 2, StartNS: 420 * ms, EndNS: 620 * ms, Class: probe.Timeout},
			},
			Policy: []probe.PolicyEvent{{TimeNS: 320 * ms, Policy: "retry", Event: "scheduled", Attempt: 2, DelayNS: 100 * ms}},
		},
		{Seq: 3, StartNS: 700 * ms, EndNS: 700 * ms, Class: probe.Rejected, Policy: []probe.PolicyEvent{{TimeNS: 700 * ms, Policy: "breaker", Event: "rejected"}}},
	}
}

func lines(t *testing.T, samples []probe.Sample) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	for _, s := range samples {
		if err := e.Encode(s); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func read(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// recordAll records the samples of above, and checks that each is in the folder as soon as
// it was added.
func recordAll(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, ResultFile), []byte("of another run"), 0o644); err != nil {
		t.Fatal(err)
	}
	rec, err := Record(dir, probe.Request{Kind: probe.KindHTTP, Target: `a"b`})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, ResultFile)); err != nil || rec.Begun() {
		t.Error("another run's result is gone before this one has begun")
	}
	rec.Begin()
	if _, err := os.Stat(filepath.Join(dir, ResultFile)); err == nil || !rec.Begun() {
		t.Error("another run's result is still there")
	}
	all := recorded()
	for i, s := range all {
		if err := rec.Add(lines(t, []probe.Sample{s}), time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := bytes.Count(read(t, dir, SamplesFile), []byte("\n")); got != i+1 {
			t.Errorf("%d samples are in the folder, want %d", got, i+1)
		}
	}
	res := ProbeResult{Kind: "http", Summary: rec.Summary("a test")}
	if res.Count != 3 || res.Warmup != 1 || res.Rejected != 1 || res.Attempts != 3 {
		t.Errorf("summary: %+v", res.Summary)
	}
	if err := rec.Finish(res, time.Unix(7200, 0)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestRecordingOpenMetrics reads the metrics with Prometheus's own parser, which
// leaves OpenMetrics' own rules to be looked at here: the units, and the end.
func TestRecordingOpenMetrics(t *testing.T) {
	text := read(t, recordAll(t), MetricsFile)
	if !bytes.HasSuffix(text, []byte("# EOF\n")) || bytes.Count(text, []byte("# EOF")) != 1 {
		t.Error("the end is missing")
	}
	for _, m := range regexp.MustCompile(`(?m)^# UNIT (\S+) (\S+)$`).FindAllSubmatch(text, -1) {
		if !strings.HasSuffix(string(m[1]), "_"+string(m[2])) {
			t.Errorf("unit of %s is %s", m[1], m[2])
		}
	}
	var parser expfmt.TextParser
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	h := families["netemd_probe_latency_seconds"]
	if len(h.GetMetric()) != 3 {
		t.Fatalf("%d histograms, want ok, rejected and timeout", len(h.GetMetric()))
	}
	for _, m := range h.GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["target"] != `a"b` || m.GetHistogram().GetSampleCount() != 1 {
			t.Errorf("%v: %v", labels, m)
		}
		if labels["class"] != "timeout" {
			continue
		}
		if got := m.GetHistogram().GetSampleSum(); got < 0.6019 || got > 0.6021 {
			t.Errorf("sum %v, want 0.602: the latency is from when the call was due", got)
		}
		before := uint64(0)
		for _, b := range m.GetHistogram().GetBucket() {
			if want := b.GetUpperBound() >= 1; (b.GetCumulativeCount() == 1) != want || b.GetCumulativeCount() < before {
				t.Errorf("bucket %v has %d", b.GetUpperBound(), b.GetCumulativeCount())
			}
			before = b.GetCumulativeCount()
		}
	}
	if !strings.Contains(string(text), `netemd_probe_policy_events_total{target="a\"b",kind="http",layer="direct",event="retry.scheduled"} 1`) {
		t.Errorf("policy events are missing in\n%s", text)
	}
}

var ids = regexp.MustCompile(`"(traceId|spanId|parentSpanId)":"([0-9a-f]*)"`)

// hexIDs makes ids of OTLP's JSON, which are in hex, what protojson reads.
func hexIDs(t *testing.T, text []byte) []byte {
	return ids.ReplaceAllFunc(text, func(m []byte) []byte {
		parts := ids.FindSubmatch(m)
		id, err := hex.DecodeString(string(parts[2]))
		if want := map[string]int{"traceId": 16}[string(parts[1])]; err != nil || len(id) != max(want, 8) {
			t.Errorf("id %s: %v", m, err)
		}
		return []byte(`"` + string(parts[1]) + `":"` + base64.StdEncoding.EncodeToString(id) + `"`)
	})
}

// TestRecordingOTLP reads the files as OpenTelemetry's messages. Ids are in hex in
// OTLP's JSON, where protojson wants base64.
func TestRecordingOTLP(t *testing.T) {
	dir := recordAll(t)
	var spans []*tracev1.Span
	for line := range bytes.Lines(read(t, dir, TracesFile)) {
		line = hexIDs(t, line)
		var d tracev1.TracesData
		if err := protojson.Unmarshal(line, &d); err != nil {
			t.Fatal(err)
		}
		spans = append(spans, d.GetResourceSpans()[0].GetScopeSpans()[0].GetSpans()...)
	}
	if len(spans) != 6 {
		t.Fatalf("%d spans, want 4 calls and 2 attempts", len(spans))
	}
	call, attempt := spans[2], spans[3]
	if string(attempt.GetParentSpanId()) != string(call.GetSpanId()) || string(attempt.GetTraceId()) != string(call.GetTraceId()) {
		t.Error("an attempt is not below its call")
	}
	if string(call.GetTraceId()) == string(spans[1].GetTraceId()) {
		t.Error("two calls are one trace")
	}
	if got, want := call.GetStartTimeUnixNano(), uint64(time.Hour+20*time.Millisecond); got != want {
		t.Errorf("start %d, want %d: the offset makes Unix time", got, want)
	}
	if call.GetStatus().GetCode() != tracev1.Status_STATUS_CODE_ERROR || len(call.GetEvents()) != 1 || len(attempt.GetEvents()) != 1 {
		t.Errorf("call %v, attempt %v", call, attempt)
	}
	if spans[1].GetStatus() != nil {
		t.Errorf("a call that succeeded has the status %v", spans[1].GetStatus())
	}
	var m metricsv1.MetricsData
	if err := protojson.Unmarshal(bytes.TrimSpace(read(t, dir, OTLPMetricsFile)), &m); err != nil {
		t.Fatal(err)
	}
	all := m.GetResourceMetrics()[0].GetScopeMetrics()[0].GetMetrics()
	point := all[0].GetHistogram().GetDataPoints()[0]
	if len(point.GetBucketCounts()) != len(point.GetExplicitBounds())+1 || point.GetCount() != 1 || point.GetStartTimeUnixNano() >= point.GetTimeUnixNano() {
		t.Errorf("histogram %v", point)
	}
}
