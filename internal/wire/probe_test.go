package wire

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	netemv1 "netemd/api/netem/v1"
	"netemd/probe"
)

// TestProbeRequest: every field of a request survives the trip, and what is not said stays
// so.
func TestProbeRequest(t *testing.T) {
	for name, r := range map[string]probe.Request{
		"empty":  {},
		"closed": {Kind: "pg", Target: "pg", Layer: "proxy", Count: 7, Concurrency: 3, Pace: probe.NoPace, Timeout: time.Second, Postgres: probe.PostgresOptions{Mode: "query", Pool: 2, Query: "select f()", Write: true, Idempotent: true}},
		"open": {
			Kind: "http", Target: "web", Duration: time.Minute, Warmup: time.Second, Threshold: time.Millisecond, Seed: 1<<64 - 1,
			Open: &probe.OpenLoop{Stages: []probe.Stage{{For: time.Second, From: 0.5, To: 100}, {From: 100, To: 100}}, Poisson: true, MaxInFlight: 9},
			HTTP: probe.HTTPOptions{Version: "2", Method: "POST", Path: "/x", Bytes: 4, Keep: true, ReadTimeout: time.Millisecond, TLS: true},
		},
		"tcp":  {Kind: "tcp", TCP: probe.TCPOptions{Mode: "bulk", Bytes: 1 << 30, Keep: true}},
		"udp":  {Kind: "udp", UDP: probe.UDPOptions{Bytes: 1200}},
		"grpc": {Kind: "grpc", GRPC: probe.GRPCOptions{Mode: "bidi", Messages: 5, Bytes: 6, New: true}},
	} {
		bytes, err := proto.Marshal(ProbeRequest(r))
		if err != nil {
			t.Fatal(err)
		}
		var m netemv1.ProbeRequest
		if err := proto.Unmarshal(bytes, &m); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(r, ProbeRequestOf(&m)); d != "" {
			t.Errorf("%s (-sent +got):\n%s", name, d)
		}
	}
	p := probe.Progress{Done: 3, Failed: 1, Count: 9, Elapsed: time.Second, P50: new(1.5)}
	if d := cmp.Diff(p, ProbeProgressOf(ProbeProgress(p, 0))); d != "" {
		t.Errorf("progress (-sent +got):\n%s", d)
	}
}
