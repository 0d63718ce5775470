package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/content"
	"netemd/internal/fault"
)

// faulty is a plan with one fault.
func faulty(text string) []byte {
	return []byte("{experiment: x, version: 1, lab: echo, load: {probe: http, target: http, layer: app}, " +
		"phases: {fault: 10 calls}, kpis: [{must: ok > 0}], faults: [" + text + "]}")
}

// TestFaults has each kind of fault as its keys.
func TestFaults(t *testing.T) {
	for text, want := range map[string]fault.Spec{
		"{drop: {what: syn, count: 1}}": {Target: "http", Content: &content.Rule{Kind: content.SYN, Count: 1}},
		`{drop: {what: "match tcp.len > 100", per_connection: true, count: 2}, direction: from}`: {
			Target: "http", Direction: fault.From, Content: &content.Rule{Kind: content.Match, Expr: "tcp.len > 100", PerConnection: true, Count: 2},
		},
		`{hold: {what: "data:3", time: 200ms}}`: {Target: "http", Content: &content.Rule{Kind: content.Data, N: 3, Hold: 200 * time.Millisecond}},
		`{target: grpc, request: {error: 20% UNAVAILABLE 503, delay: 20% 300ms jitter=50ms, abort: 5%, retry_after: 2s, method: POST, path: /pay/*}}`: {
			Target: "grpc", Request: &fault.Request{
				Error: 20, Status: 503, Code: "UNAVAILABLE", Delay: 20, Latency: 300 * time.Millisecond, Jitter: 50 * time.Millisecond, Abort: 5,
				RetryAfter: 2 * time.Second, Method: "POST", Path: "/pay/*",
			},
		},
		"{process: {action: kill, services: web}}":                   {Outage: &fault.Outage{Action: fault.Kill, Services: []string{"web"}, Down: fault.DefaultDown}},
		"{process: {action: restart, services: web}}":                {Outage: &fault.Outage{Action: fault.Restart, Services: []string{"web"}}},
		"{process: {action: stop, services: [a, echo/b], down: 0s}}": {Outage: &fault.Outage{Action: fault.Stop, Services: []string{"a", "echo/b"}}},
		"{process: {action: kill, services: [a, b], down: 600ms, every: 1.5s, jitter: 20%, count: 8, at_most: 1}}": {Outage: &fault.Outage{
			Action: fault.Kill, Services: []string{"a", "b"}, Down: 600 * time.Millisecond, Every: 1500 * time.Millisecond, Jitter: 20, Count: 8, AtMost: 1,
		}},
	} {
		p, err := Parse("x.yaml", faulty(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if diff := cmp.Diff(want, p.Cases[0].Faults[0].Spec); diff != "" {
			t.Errorf("%s: %s", text, diff)
		}
	}
}

func TestFaultMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"{request: {error: 20%}}":                            "faults[0].request.error: \"20%\" is not valid, want a share and a status",
		"{request: {}}":                                      "faults[0].request: is empty",
		"{request: {error: 60% 503, delay: 60% 10ms}}":       "faults[0].request: \"120%\"",
		"{request: {error: 20% 503, retry_after: 1ms}}":      "faults[0].request.retry_after: \"1ms\" is not valid, want a multiple of 1s",
		"{process: {action: kill, services: a, every: 1ms}}": "faults[0].process.every: \"1ms\" is not valid",
		"{process: {action: maim, services: a}}":             "faults[0].process.action: \"maim\" is not valid, want kill, stop or restart",
		"{process: {action: kill, services: []}}":            "faults[0].process.services: is empty",
		"{drop: {what: syn, time: 3s}}":                      "faults[0].drop.time: is of hold",
		"{hold: {what: syn}}":                                "faults[0].hold.time: is missing",
		"{hold: {what: syn, time: 3h}}":                      "faults[0].hold",
		"{drop: {what: bogus}}":                              "faults[0].drop.what: \"bogus\" is not valid",
		"{drop: {what: syn}, request: {error: 20% 503}}":     "faults[0]: \"drop, request\" is not valid, want a fault",
		"{target: http}":                                     "faults[0]: is not valid, want a fault",
		"{engine: netem, drop: {what: syn}}":                 "only the ebpf engine can choose",
	} {
		_, err := Parse("x.yaml", faulty(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "kind") {
			t.Errorf("%s: %v has a key that is in no plan", text, err)
		}
	}
}
