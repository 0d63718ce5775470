package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/probe"
	"netemd/qdisc"
)

// TestComparedCalls: what a command line asks for is what each row's calls are.
func TestComparedCalls(t *testing.T) {
	closed := func(r probe.Request) probe.Request {
		r.Concurrency, r.Pace = 4, 60*time.Millisecond
		return r
	}
	for line, want := range map[string]probe.Request{
		"":                             closed(probe.Request{Count: 200}),
		"--mode query --pool 3 -n 20":  closed(probe.Request{Count: 20, Postgres: probe.PostgresOptions{Mode: "query", Pool: 3}}),
		"--probe tcp --mode download":  closed(probe.Request{Kind: probe.KindTCP, Count: 200, TCP: probe.TCPOptions{Mode: "download"}}),
		"--bytes 1kB --probe udp":      closed(probe.Request{Kind: probe.KindUDP, Count: 200, UDP: probe.UDPOptions{Bytes: 1000}}),
		"--probe grpc --mode bidi":     closed(probe.Request{Kind: probe.KindGRPC, Count: 200, GRPC: probe.GRPCOptions{Mode: "bidi"}}),
		"--probe http --keep --seed 7": closed(probe.Request{Kind: probe.KindHTTP, Count: 200, Seed: 7, HTTP: probe.HTTPOptions{Keep: true}}),
		"--probe http --path /x --rate 50/s --rate 10mbit --duration 5s": {
			Kind: probe.KindHTTP, Duration: 5 * time.Second, HTTP: probe.HTTPOptions{Path: "/x"},
			Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 50, To: 50}}},
		},
	} {
		w := world{agent: newFakeAgent()}
		var rows []string
		var packet qdisc.Netem
		w.agent.during = func() {
			for _, f := range w.agent.faults {
				if f.Spec.Packet != nil {
					packet = *f.Spec.Packet
				}
			}
			rows = append(rows, w.agent.request.Layer)
		}
		code := w.run(t.Context(), append(strings.Fields("compare --target pg"), strings.Fields(line)...)...)
		if code != exitDone && code != exitInconclusive {
			t.Errorf("%s: exit code %d, %s", line, code, w.stderr.String())
			continue
		}
		asked := w.agent.request
		want.Target, want.Layer = "pg", asked.Layer
		if asked.Count == 20 && want.Count == 200 {
			want.Count = 20 // of a calibration that was the last
		}
		if d := cmp.Diff(want.WithDefaults(), asked); d != "" {
			t.Errorf("%s (-want +asked):\n%s", line, d)
		}
		if (packet.Rate != 0) != strings.Contains(line, "mbit") || packet.Seed != want.Seed || len(rows) < 2 {
			t.Errorf("%s: impaired by %v, rows %v", line, packet, rows)
		}
	}
}

// TestComparedCallsRefused: a mistake is exit code 2, and nothing is measured.
func TestComparedCallsRefused(t *testing.T) {
	for line, want := range map[string]string{
		"--probe icmp":              "want pg, tcp, udp, http or grpc",
		"--path /x":                 "--path is of http, and the calls are of pg",
		"--probe http --mode query": "--mode is of pg, tcp or grpc, and the calls are of http",
		"--probe tcp --mode query":  "--mode \"query\": want connect, echo, bulk or download",
		"--probe udp --bytes 10B":   "--bytes \"10B\": want an amount from 52B",
		"--rate 50":                 "--rate \"50\"",
		"--rate 0/s":                "calls a second above 0",
		"--rate 5/s --pace 1s":      "of a closed loop",
		"--spike 10/1s@1s":          "of an open loop",
		"--policy nope":             "want a built-in policy",
		"--tc loss --rate 1mbit":    "--tc",
	} {
		w := world{agent: newFakeAgent()}
		w.agent.during = func() { t.Errorf("%s: measured", line) }
		args := append(strings.Fields("compare --target pg"), strings.Fields(line)...)
		if code := w.run(t.Context(), args...); code != exitUsage || !strings.Contains(w.stderr.String(), want) {
			t.Errorf("%s: exit code %d, %q, want %q", line, code, w.stderr.String(), want)
		}
	}
}

// TestComparePolicy: a policy reaches the agent, and its name the result and the page.
func TestComparePolicy(t *testing.T) {
	dir := t.TempDir()
	w := world{agent: newFakeAgent()}
	if code := w.run(t.Context(), "compare", "--target", "pg", "-n", "40", "--policy", "full-jitter", "-o", "json", "--out", dir); code != exitDone {
		t.Fatal(w.stderr.String())
	}
	if len(w.agent.run.PolicyYAML) == 0 || !strings.Contains(w.stdout.String(), `"policy_name": "full-jitter"`) {
		t.Errorf("the policy is lost: %s", w.stdout.String())
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || !strings.Contains(string(page), "under the client policy full-jitter") {
		t.Errorf("the page says nothing of the policy (%v)", err)
	}
}
