package report

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"netemd/internal/experiment"
	"netemd/probe"
)

// collector is a server that reads what OpenTelemetry's own messages say.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	requests int
	header   http.Header
	spans    map[string][]*tracev1.Span // by the resource's service.name and layer
	// answer, when set, answers the n-th request, from 1, instead.
	answer func(n int, w http.ResponseWriter) (done bool)
}

func newCollector(t *testing.T, answer func(n int, w http.ResponseWriter) bool) *collector {
	t.Helper()
	c := &collector{spans: map[string][]*tracev1.Span{}, answer: answer}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests++
		c.header = r.Header.Clone()
		var body io.Reader = r.Body
		if r.Header.Get("Content-Encoding") == "gzip" {
			z, err := gzip.NewReader(body)
			if err != nil {
				t.Error(err)
				return
			}
			body = z
		}
		text, err := io.ReadAll(body)
		if err != nil {
			return // the client gave up
		}
		if c.answer != nil && c.answer(c.requests, w) {
			return
		}
		var m collectorv1.ExportTraceServiceRequest
		if err := protojson.Unmarshal(hexIDs(t, text), &m); err != nil {
			t.Errorf("%v in %s", err, text)
		}
		if r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s %s, %v", r.Method, r.URL, r.Header)
		}
		for _, rs := range m.GetResourceSpans() {
			var of []string
			for _, a := range rs.GetResource().GetAttributes() {
				if a.GetKey() == "service.name" || a.GetKey() == "netemd.layer" {
					of = append(of, a.GetValue().GetStringValue())
				}
			}
			name := strings.Join(of, " ")
			c.spans[name] = append(c.spans[name], rs.GetScopeSpans()[0].GetSpans()...)
		}
		answer, err := protojson.Marshal(&collectorv1.ExportTraceServiceResponse{})
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	}))
	t.Cleanup(c.Close)
	return c
}

func event(kind string, at time.Duration) experiment.Event {
	return experiment.Event{TimeNS: int64(at), Time: time.Unix(0, int64(time.Hour+at)), Event: kind, Fault: "kqv1", Target: "web", Asked: "loss 20% to web", State: "active", Engine: "ebpf"}
}

// TestExporter: what a collector gets is what was measured, and the fault's time beside it.
func TestExporter(t *testing.T) {
	c := newCollector(t, nil)
	e := Export(Collector{URL: c.URL + "/v1/traces", Headers: map[string]string{"authorization": "Bearer x y"}, Gzip: true})
	add := e.Of(probe.Request{Kind: probe.KindHTTP, Target: "web"})
	e.AddEvent(event(experiment.Standing, 5*time.Millisecond))
	all := recorded()
	add(lines(t, all[:2]), time.Hour)
	add(lines(t, all[2:]), time.Hour)
	e.AddEvent(event("lost", 100*time.Millisecond))
	e.AddEvent(event("repaired", 200*time.Millisecond))
	e.AddEvent(event("cleared", 300*time.Millisecond))
	e.AddEvent(event("cleared", 310*time.Millisecond)) // of a fault whose beginning was not seen
	e.AddEvent(experiment.Event{Time: time.Unix(3601, 0), Event: "applied", Fault: "kqv2", Asked: "delay 5ms"})
	got := e.Close(5*time.Second, time.Unix(3602, 0))
	if got != (Exported{Calls: 4, Faults: 2}) {
		t.Errorf("sent %+v", got)
	}
	calls, faults := c.spans["netemd-probe direct"], c.spans["netemd-faults"]
	if len(calls) != 6 || len(faults) != 2 {
		t.Fatalf("%d spans of calls and attempts, %d of faults", len(calls), len(faults))
	}
	if c.header.Get("Authorization") != "Bearer x y" {
		t.Errorf("headers %v", c.header)
	}
	f := faults[0]
	var happened []string
	for _, x := range f.GetEvents() {
		happened = append(happened, x.GetName()+"@"+time.Duration(x.GetTimeUnixNano()-uint64(time.Hour)).String())
	}
	want := "fault.standing@5ms fault.lost@100ms fault.repaired@200ms fault.cleared@300ms"
	if strings.Join(happened, " ") != want || f.GetStartTimeUnixNano() != uint64(time.Hour+5*time.Millisecond) || f.GetEndTimeUnixNano() != uint64(time.Hour+300*time.Millisecond) {
		t.Errorf("the fault: %v", f)
	}
	// The second call began while the fault was in force, on the same clock.
	if s := calls[1].GetStartTimeUnixNano(); s != uint64(time.Hour+10*time.Millisecond) || s < f.GetStartTimeUnixNano() || s > f.GetEndTimeUnixNano() {
		t.Errorf("the call began at %d", s)
	}
	if end := faults[1].GetEndTimeUnixNano(); end != 3602e9 {
		t.Errorf("a fault that goes on ends at %d", end)
	}
}

// TestExporterTriesAgain: what a collector may take later is sent again, nothing else is.
func TestExporterTriesAgain(t *testing.T) {
	for _, c := range []struct {
		name     string
		answer   func(n int, w http.ResponseWriter) bool
		requests int
		want     Exported
		err      string
	}{
		{"later", func(n int, w http.ResponseWriter) bool {
			if n > 2 {
				return false
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}, 3, Exported{Calls: 4}, ""},
		{"never", func(_ int, w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}, 3, Exported{Unsent: 4}, "429 Too Many Requests"},
		{"refused", func(_ int, w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusUnauthorized)
			return true
		}, 1, Exported{Unsent: 4}, "401 Unauthorized"},
		{"redirected", func(_ int, w http.ResponseWriter) bool {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusTemporaryRedirect)
			return true
		}, 1, Exported{Unsent: 4}, "307 Temporary Redirect"},
		{"in part", func(_ int, w http.ResponseWriter) bool {
			_, _ = io.WriteString(w, `{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}`)
			return true
		}, 1, Exported{Calls: 1, Unsent: 3}, "did not take 3 spans: too old"},
		{"an answer in another form", func(_ int, w http.ResponseWriter) bool {
			_, _ = io.WriteString(w, "thank you")
			return true
		}, 1, Exported{Calls: 4}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newCollector(t, c.answer)
			e := Export(Collector{URL: s.URL + "/v1/traces"})
			e.Of(probe.Request{Kind: probe.KindHTTP})(lines(t, recorded()), time.Hour)
			got := e.Close(20*time.Second, time.Unix(7200, 0))
			err := got.Err
			if got.Err = nil; got != c.want || s.requests != c.requests || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%+v, %d requests, error %v", got, s.requests, err)
			}
		})
	}
}

// TestExporterNeverWaits: a collector that takes for ever delays nobody, and what finds no room
// is counted.
func TestExporterNeverWaits(t *testing.T) {
	hang := make(chan struct{})
	s := newCollector(t, func(int, http.ResponseWriter) bool {
		<-hang
		return true
	})
	e := Export(Collector{URL: s.URL + "/v1/traces"})
	add := e.Of(probe.Request{Kind: probe.KindHTTP})
	one := []byte(`{"error":"` + strings.Repeat("x", 1<<20) + `","class":"other"}` + "\n")
	const calls = 40 // of 1 MiB each; 16 may wait, and one may be on its way
	for range calls {
		add(one, time.Hour)
	}
	began := time.Now()
	got := e.Close(300*time.Millisecond, time.Unix(7200, 0))
	close(hang)
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the end took %v", took)
	}
	if got.Calls != 0 || got.Unsent != calls || got.Err == nil {
		t.Errorf("%d sent, %d not, error %v", got.Calls, got.Unsent, got.Err)
	}
}

// TestExporterUnreachable: nobody there is an error, and soon.
func TestExporterUnreachable(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	e := Export(Collector{URL: s.URL + "/v1/traces"})
	e.Of(probe.Request{Kind: probe.KindHTTP})(lines(t, recorded()), time.Hour)
	if got := e.Close(20*time.Second, time.Unix(7200, 0)); got.Unsent != 4 || got.Err == nil || !strings.Contains(got.Err.Error(), "refused") {
		t.Errorf("%+v", got)
	}
}

// TestRecordingEvents: events stand in their file on the samples' clock, and the faults' times
// beside the spans of the calls.
func TestRecordingEvents(t *testing.T) {
	dir := t.TempDir()
	rec, err := Record(dir, probe.Request{Kind: probe.KindHTTP, Target: "web"})
	if err != nil {
		t.Fatal(err)
	}
	standing := event(experiment.Standing, 5*time.Millisecond)
	standing.TimeNS = 0 // nobody knows the samples' clock yet
	rec.AddEvent(standing)
	rec.AddEvent(event("changed", 6*time.Millisecond))
	if err := rec.Add(lines(t, recorded()[:1]), time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(read(t, dir, EventsFile)), "\n"); got != 2 {
		t.Errorf("%d events are in the folder, want 2", got)
	}
	rec.AddEvent(event("lost", 9*time.Millisecond))
	if err := rec.Finish(ProbeResult{}, time.Unix(7200, 0)); err != nil {
		t.Fatal(err)
	}
	text := string(read(t, dir, EventsFile))
	for i, at := range []time.Duration{5 * time.Millisecond, 6 * time.Millisecond, 9 * time.Millisecond} {
		if line := strings.Split(text, "\n")[i]; !strings.HasPrefix(line, `{"time_ns":`+strconv.FormatInt(int64(at), 10)+`,`) {
			t.Errorf("event %d is %s", i, line)
		}
	}
	if spans := string(read(t, dir, TracesFile)); !strings.Contains(spans, `"name":"fault: loss 20% to web"`) || !strings.Contains(spans, `"name":"fault.lost"`) {
		t.Errorf("the fault is not beside the calls: %s", spans)
	}
}
