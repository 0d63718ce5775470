package report

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"netemd/internal/version"
	"netemd/probe"
)

// The types below are the parts of OTLP/JSON (opentelemetry.io/docs/specs/otlp, JSON
// Protobuf Encoding) that a probe fills: ids are in hex there, 64-bit numbers are strings,
// enums numbers. A file has one document a line, as OTLP's file exporter writes them.
type (
	resource struct {
		Attributes []attribute `json:"attributes"`
	}
	attribute struct {
		Key   string   `json:"key"`
		Value anyValue `json:"value"`
	}
	anyValue struct {
		String *string  `json:"stringValue,omitempty"`
		Int    *string  `json:"intValue,omitempty"`
		Double *float64 `json:"doubleValue,omitempty"`
		Bool   *bool    `json:"boolValue,omitempty"`
	}
	scope struct {
		Name    string `json:"name"`
		Version string `json:"version,omitempty"`
	}
	tracesData struct {
		ResourceSpans []resourceSpans `json:"resourceSpans"`
	}
	resourceSpans struct {
		Resource   resource     `json:"resource"`
		ScopeSpans []scopeSpans `json:"scopeSpans"`
	}
	scopeSpans struct {
		Scope scope  `json:"scope"`
		Spans []span `json:"spans"`
	}
	span struct {
		TraceID    string      `json:"traceId"`
		SpanID     string      `json:"spanId"`
		ParentID   string      `json:"parentSpanId,omitempty"`
		Name       string      `json:"name"`
		Kind       int         `json:"kind"`
		Start      string      `json:"startTimeUnixNano"`
		End        string      `json:"endTimeUnixNano"`
		Attributes []attribute `json:"attributes,omitempty"`
		Events     []spanEvent `json:"events,omitempty"`
		Status     *spanStatus `json:"status,omitempty"`
	}
	spanEvent struct {
		Time       string      `json:"timeUnixNano"`
		Name       string      `json:"name"`
		Attributes []attribute `json:"attributes,omitempty"`
	}
	spanStatus struct {
		Message string `json:"message,omitempty"`
		Code    int    `json:"code"`
	}
)

const (
	spanInternal = 1 // SPAN_KIND_INTERNAL
	spanClient   = 3 // SPAN_KIND_CLIENT
	statusError  = 2 // STATUS_CODE_ERROR
	cumulative   = 2 // AGGREGATION_TEMPORALITY_CUMULATIVE
)

func text(key, v string) attribute { return attribute{key, anyValue{String: &v}} }

func integer(key string, n int64) attribute {
	s := strconv.FormatInt(n, 10)
	return attribute{key, anyValue{Int: &s}}
}

func flag(key string, b bool) attribute { return attribute{key, anyValue{Bool: &b}} }

// resourceOf is what all of a run has in common; e is nil where it is not known yet.
func resourceOf(r probe.Request, e *probe.Environment) resource {
	return resource{append([]attribute{
		text("service.name", "netemd-probe"), text("netemd.target", r.Target), text("netemd.probe.kind", r.Kind), text("netemd.layer", r.Layer),
	}, environmentAttributes(e)...)}
}

// tracer makes spans of samples: one for each call, with those of its attempts below it.
type tracer struct {
	request probe.Request
	run     [8]byte // the first half of every trace's id
	next    uint64
}

func newTracer(r probe.Request) *tracer {
	t := &tracer{request: r}
	_, _ = rand.Read(t.run[:]) // it cannot fail
	t.run[0] |= 1              // an id of zeros is none
	return t
}

func (t *tracer) write(w io.Writer, samples []probe.Sample, offset time.Duration) error {
	var spans []span
	for i := range samples {
		spans = t.append(spans, &samples[i], offset)
	}
	return encodeLine(w, tracesOf(resourceOf(t.request, nil), spans))
}

// append adds a call's spans. Each call is a trace of its own.
func (t *tracer) append(spans []span, s *probe.Sample, offset time.Duration) []span {
	trace := hex.EncodeToString(binary.BigEndian.AppendUint64(slices.Clone(t.run[:]), uint64(s.Seq)))
	call := t.span(trace, "", s, offset)
	call.Name, call.Kind = t.request.Kind+" call", spanClient
	if len(s.Attempts) > 0 {
		call.Kind = spanInternal // what leaves the client are the attempts
	}
	if s.DueNS != 0 {
		call.Attributes = append(call.Attributes, integer("netemd.lag_ns", s.StartNS-s.DueNS))
	}
	if s.Warmup {
		call.Attributes = append(call.Attributes, flag("netemd.warmup", true))
	}
	spans = append(spans, call)
	for i := range s.Attempts {
		a := t.span(trace, call.SpanID, &s.Attempts[i], offset)
		a.Name, a.Kind = t.request.Kind+" attempt", spanClient
		a.Attributes = append(a.Attributes, integer("netemd.attempt", int64(i+1)))
		if i > 0 && t.request.Kind == probe.KindHTTP {
			a.Attributes = append(a.Attributes, integer("http.request.resend_count", int64(i)))
		}
		spans = append(spans, a)
	}
	return spans
}

// conventions are what OpenTelemetry calls the kinds of calls (opentelemetry.io/docs/specs/semconv:
// database, HTTP, RPC and network spans).
var conventions = map[string][]attribute{
	probe.KindPostgres: {text("network.transport", "tcp"), text("db.system.name", "postgresql")},
	probe.KindTCP:      {text("network.transport", "tcp")},
	probe.KindUDP:      {text("network.transport", "udp")},
	probe.KindHTTP:     {text("network.transport", "tcp"), text("network.protocol.name", "http")},
	probe.KindGRPC:     {text("network.transport", "tcp"), text("rpc.system", "grpc")},
}

func (t *tracer) span(trace, parent string, s *probe.Sample, offset time.Duration) span {
	t.next++
	at := func(ns int64) string { return strconv.FormatInt(ns+int64(offset), 10) }
	x := span{
		TraceID: trace, SpanID: hex.EncodeToString(binary.BigEndian.AppendUint64(nil, t.next)), ParentID: parent,
		Start: at(s.StartNS), End: at(s.EndNS),
		Attributes: []attribute{integer("netemd.seq", int64(s.Seq)), text("netemd.class", string(s.Class))},
	}
	x.Attributes = append(x.Attributes, conventions[t.request.Kind]...)
	if s.Remote.IsValid() {
		x.Attributes = append(x.Attributes, text("server.address", s.Remote.Addr().String()), integer("server.port", int64(s.Remote.Port())))
	}
	if s.Local.IsValid() {
		x.Attributes = append(x.Attributes, text("client.address", s.Local.Addr().String()), integer("client.port", int64(s.Local.Port())))
	}
	if s.Cause != "" {
		x.Attributes = append(x.Attributes, text("netemd.cause", string(s.Cause)))
	}
	for _, p := range s.Phases {
		x.Attributes = append(x.Attributes, integer("netemd.phase."+p.Name+"_ns", p.NS))
	}
	if s.Class != probe.OK {
		x.Status = &spanStatus{Message: s.Error, Code: statusError}
		x.Attributes = append(x.Attributes, text("error.type", string(s.Class)))
	}
	for _, e := range s.Events {
		x.Events = append(x.Events, spanEvent{at(e.TimeNS), "tcp.retransmit", []attribute{text("netemd.cause", string(e.Cause)), flag("netemd.server", e.Server)}})
	}
	for _, e := range s.Policy {
		about := []attribute{integer("netemd.attempt", int64(e.Attempt))}
		if e.DelayNS > 0 {
			about = append(about, integer("netemd.delay_ns", e.DelayNS))
		}
		if e.Detail != "" {
			about = append(about, text("netemd.detail", e.Detail))
		}
		x.Events = append(x.Events, spanEvent{at(e.TimeNS), e.Policy + "." + e.Event, about})
	}
	return x
}

type (
	metricsData struct {
		ResourceMetrics []resourceMetrics `json:"resourceMetrics"`
	}
	resourceMetrics struct {
		Resource     resource       `json:"resource"`
		ScopeMetrics []scopeMetrics `json:"scopeMetrics"`
	}
	scopeMetrics struct {
		Scope   scope    `json:"scope"`
		Metrics []metric `json:"metrics"`
	}
	metric struct {
		Name        string         `json:"name"`
		Description string         `json:"description"`
		Unit        string         `json:"unit"`
		Sum         *sumData       `json:"sum,omitempty"`
		Histogram   *histogramData `json:"histogram,omitempty"`
	}
	sumData struct {
		Points      []numberPoint `json:"dataPoints"`
		Temporality int           `json:"aggregationTemporality"`
		Monotonic   bool          `json:"isMonotonic"`
	}
	numberPoint struct {
		Attributes []attribute `json:"attributes,omitempty"`
		Start      string      `json:"startTimeUnixNano"`
		Time       string      `json:"timeUnixNano"`
		Int        string      `json:"asInt"`
	}
	histogramData struct {
		Points      []histogramPoint `json:"dataPoints"`
		Temporality int              `json:"aggregationTemporality"`
	}
	histogramPoint struct {
		Attributes []attribute `json:"attributes"`
		Start      string      `json:"startTimeUnixNano"`
		Time       string      `json:"timeUnixNano"`
		Count      string      `json:"count"`
		Sum        float64     `json:"sum"`
		Counts     []string    `json:"bucketCounts"`
		Bounds     []float64   `json:"explicitBounds"`
	}
)

// otlp writes the same numbers as openMetrics. now is when they were taken.
func (t *tally) otlp(w io.Writer, res ProbeResult, now time.Time) error {
	end := strconv.FormatInt(now.UnixNano(), 10)
	start := strconv.FormatInt(now.UnixNano()-(t.ended-t.began), 10)
	histograms := func(name, help string, of map[probe.Class]*histogram) metric {
		d := &histogramData{Points: []histogramPoint{}, Temporality: cumulative}
		for _, class := range slices.Sorted(maps.Keys(of)) {
			h := of[class]
			p := histogramPoint{
				Attributes: []attribute{text("netemd.class", string(class))}, Start: start, Time: end,
				Count: strconv.FormatUint(h.count, 10), Sum: h.sum, Bounds: bounds,
			}
			for _, n := range h.counts {
				p.Counts = append(p.Counts, strconv.FormatUint(n, 10))
			}
			d.Points = append(d.Points, p)
		}
		return metric{Name: name, Description: help, Unit: "s", Histogram: d}
	}
	metrics := []metric{
		histograms("netemd.probe.latency", "Time from when a call was due to its end.", t.latency),
		histograms("netemd.probe.service_time", "Time from a call's start to its end.", t.service),
	}
	for _, c := range counters(res.Summary) {
		d := &sumData{Points: []numberPoint{}, Temporality: cumulative, Monotonic: true}
		for _, s := range c.series {
			p := numberPoint{Start: start, Time: end, Int: strconv.Itoa(s.n)}
			if s.label != "" {
				p.Attributes = []attribute{text("netemd."+s.label, s.value)}
			}
			d.Points = append(d.Points, p)
		}
		metrics = append(metrics, metric{Name: dotted(c.name), Description: c.help, Unit: "1", Sum: d})
	}
	return encodeLine(w, metricsData{[]resourceMetrics{{
		Resource: resourceOf(t.request, res.Environment), ScopeMetrics: []scopeMetrics{{scope{"netemd", version.String()}, metrics}},
	}}})
}

// dotted is a counter's name as OpenTelemetry writes it: netemd.probe.slow_calls.
func dotted(name string) string { return "netemd.probe." + name[len("netemd_probe_"):] }
