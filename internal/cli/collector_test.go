package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/probe"
	"netemd/qdisc"
)

// received is what a collector got.
type received struct {
	*httptest.Server
	mu     sync.Mutex
	paths  []string
	header http.Header
	spans  []string
}

func collect(t *testing.T, status int) *received {
	t.Helper()
	c := &received{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var m struct {
			ResourceSpans []struct {
				ScopeSpans []struct{ Spans []struct{ Name string } }
			}
		}
		if err := json.Unmarshal(body, &m); err != nil {
			t.Error(err)
		}
		for _, rs := range m.ResourceSpans {
			for _, s := range rs.ScopeSpans[0].Spans {
				c.spans = append(c.spans, s.Name)
			}
		}
		c.paths, c.header = append(c.paths, r.URL.Path), r.Header.Clone()
		w.WriteHeader(status)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *received) count(name string) (n int) {
	for _, s := range c.spans {
		if s == name {
			n++
		}
	}
	return n
}

// happened is a fault that is lost and cleared while calls are made, and renewed.
func happened() (events []fault.Event) {
	f := fault.Fault{ID: "kqv1", Spec: fault.Spec{Target: "pg", Packet: &qdisc.Netem{Loss: 20}}, State: fault.Active}
	for i, kind := range []string{"applied", "renewed", "lost", "cleared"} {
		events = append(events, fault.Event{Time: noon.Add(time.Duration(i) * time.Second), Monotonic: int64(i+1) * 1e9, Kind: kind, Fault: f})
	}
	return events
}

// TestOTLP: calls and faults reach the collector that the flag or the environment names.
func TestOTLP(t *testing.T) {
	for _, c := range []struct {
		name, line string
		env        func(url string) map[string]string
		path       string
		calls      int
		told       string
	}{
		{"flag", "probe pg --target pg -n 7 --otlp URL", nil, "/v1/traces", 7, ""},
		{"flag with a path", "probe pg --target pg -n 7 --otlp URL/otel/", nil, "/otel/v1/traces", 7, ""},
		{"compare", "compare --target pg -n 7 --otlp URL/v1/traces", nil, "/v1/traces", 21, ""},
		{"environment", "probe pg --target pg -n 7", func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_HEADERS": "x-token=a%20b, y=2"}
		}, "/v1/traces", 7, "by OTEL_EXPORTER_OTLP_ENDPOINT"},
		{"of traces", "probe pg --target pg -n 7", func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": url + "/mine", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://192.0.2.1"}
		}, "/mine", 7, "by OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"},
		{"nobody", "probe pg --target pg -n 7 --otlp none", func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url}
		}, "", 0, ""},
		{"disabled", "probe pg --target pg -n 7", func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_SDK_DISABLED": "true"}
		}, "", 0, ""},
		{"another protocol", "probe pg --target pg -n 7", func(url string) map[string]string {
			return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
		}, "", 0, "which takes gRPC"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := collect(t, http.StatusOK)
			w := world{agent: newFakeAgent()}
			w.agent.events = happened()
			if c.env != nil {
				w.env = c.env(s.URL)
			}
			if code := w.run(t.Context(), strings.Fields(strings.ReplaceAll(c.line, "URL", s.URL))...); code != exitDone {
				t.Fatalf("exit code %d, %s", code, w.stderr.String())
			}
			faults := 0
			if c.calls > 0 {
				faults = 1
			}
			if s.count("pg call") != c.calls || s.count("fault: loss 20% to pg") != faults || len(s.paths) > 0 && s.paths[0] != c.path {
				t.Errorf("%d spans %v at %v", len(s.spans), s.spans, s.paths)
			}
			if !strings.Contains(w.stderr.String(), c.told) || strings.Contains(w.stderr.String(), "not sent to the collector") {
				t.Errorf("told %q", w.stderr.String())
			}
			if token := s.header.Get("X-Token"); c.name == "environment" && token != "a b" {
				t.Errorf("token %q", token)
			}
		})
	}
}

// TestOTLPFails: a collector that does not take them changes nothing of the run, and what was
// not sent is told.
func TestOTLPFails(t *testing.T) {
	s := collect(t, http.StatusForbidden)
	w := world{agent: newFakeAgent()}
	w.agent.events = happened()
	if code := w.run(t.Context(), "probe", "pg", "--target", "pg", "-n", "7", "--otlp", s.URL); code != exitDone || w.stdout.Len() == 0 {
		t.Errorf("exit code %d, %q", code, w.stdout.String())
	}
	if want := "the spans of 7 of 7 calls and 1 of 1 faults were not sent to the collector: HTTP/1.1 403 Forbidden"; !strings.Contains(w.stderr.String(), want) {
		t.Errorf("told %q, want %q", w.stderr.String(), want)
	}
}

// TestOTLPRefused: a mistake is exit code 2, and nothing is measured. Headers are not shown.
func TestOTLPRefused(t *testing.T) {
	for _, c := range []struct {
		flag, name, value, want string
	}{
		{"http://127.0.0.1:99999", "", "", "--otlp \"http://127.0.0.1:99999\": want the http or https address"},
		{"localhost:4318", "", "", "--otlp \"localhost:4318\": want the http or https address"},
		{"ftp://x", "", "", "want the http or https address"},
		{"http://user:secret@x", "", "", "a token goes into OTEL_EXPORTER_OTLP_HEADERS"},
		{"", "OTEL_EXPORTER_OTLP_ENDPOINT", "x", "OTEL_EXPORTER_OTLP_ENDPOINT \"x\""},
		{"http://x", "OTEL_EXPORTER_OTLP_HEADERS", "secret", "header 1: want NAME=VALUE"},
		{"http://x", "OTEL_EXPORTER_OTLP_HEADERS", "a=%zzsecret", "header 1: want NAME=VALUE"},
		{"http://x", "OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "a number of milliseconds above 0"},
	} {
		w := world{agent: newFakeAgent(), env: map[string]string{c.name: c.value}}
		w.agent.during = func() { t.Errorf("%v: measured", c) }
		args := []string{"probe", "pg", "--target", "pg"}
		if c.flag != "" {
			args = append(args, "--otlp", c.flag)
		}
		code := w.run(t.Context(), args...)
		if told := w.stderr.String(); code != exitUsage || !strings.Contains(told, c.want) || c.name == "OTEL_EXPORTER_OTLP_HEADERS" && strings.Contains(told, "secret") {
			t.Errorf("%v: exit code %d, %q", c, code, told)
		}
	}
}

// TestEventsOut: what happens to faults stands beside the samples; renewals do not, and a run is
// made where nobody tells.
func TestEventsOut(t *testing.T) {
	for _, command := range []string{"probe pg", "compare"} {
		dir := t.TempDir()
		w := world{agent: newFakeAgent()}
		w.agent.events = happened()
		if code := w.run(t.Context(), append(strings.Fields(command), "--target", "pg", "-n", "7", "--out", dir)...); code != exitDone {
			t.Fatal(w.stderr.String())
		}
		text, err := os.ReadFile(filepath.Join(dir, "events.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for line := range strings.Lines(string(text)) {
			var e struct {
				TimeNS                      int64 `json:"time_ns"`
				Event, Fault, Target, Asked string
			}
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			if e.TimeNS == 0 || e.Fault != "kqv1" || e.Target != "pg" || e.Asked != "loss 20% to pg" {
				t.Errorf("%s: %s", command, line)
			}
			kinds = append(kinds, e.Event)
		}
		if got := strings.Join(kinds, " "); got != "applied lost cleared" {
			t.Errorf("%s: events %s", command, got)
		}
		w = world{agent: newFakeAgent()}
		w.agent.watchErr = probe.ErrRequest
		if code := w.run(t.Context(), append(strings.Fields(command), "--target", "pg", "-n", "7", "--out", dir)...); code != exitDone || !strings.Contains(w.stderr.String(), "what happens to faults meanwhile is not told") {
			t.Errorf("%s: exit code %d, %q", command, code, w.stderr.String())
		}
	}
}
