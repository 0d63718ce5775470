package stream

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
)

// The exact text that is sent, in Toxiproxy's units, and what is made of it when
// it comes back.
func TestOrders(t *testing.T) {
	deadline := time.Unix(1, 5)
	for name, c := range map[string]struct {
		toxics []fault.Toxic
		want   string
		back   []fault.Toxic
	}{
		"none": {want: `{"deadline_unix_ns":0,"enabled":true,"toxics":[]}`},
		"down": {
			toxics: []fault.Toxic{{Kind: fault.Down, Stream: fault.Downstream, Toxicity: 100}},
			want:   `{"deadline_unix_ns":1000000005,"enabled":false,"toxics":[]}`,
			back:   []fault.Toxic{{Kind: fault.Down}},
		},
		"defaults are written out": {
			toxics: []fault.Toxic{{Kind: fault.Latency, Latency: 300 * time.Millisecond}},
			want: `{"deadline_unix_ns":1000000005,"enabled":true,"toxics":[{"name":"netemd-fault-latency_downstream","type":"latency",` +
				`"stream":"downstream","toxicity":1,"attributes":{"latency":300,"jitter":0}}]}`,
			back: []fault.Toxic{{Kind: fault.Latency, Stream: fault.Downstream, Toxicity: 100, Latency: 300 * time.Millisecond}},
		},
		"upstream comes first": {
			toxics: []fault.Toxic{
				{Kind: fault.Timeout, Toxicity: 7},
				{Kind: fault.ResetPeer, Stream: fault.Upstream, Toxicity: 30, Timeout: 2 * time.Second},
			},
			want: `{"deadline_unix_ns":1000000005,"enabled":true,"toxics":[` +
				`{"name":"netemd-fault-reset_peer_upstream","type":"reset_peer","stream":"upstream","toxicity":0.3,"attributes":{"timeout":2000}},` +
				`{"name":"netemd-fault-timeout_downstream","type":"timeout","stream":"downstream","toxicity":0.07,"attributes":{"timeout":0}}]}`,
			back: []fault.Toxic{
				{Kind: fault.ResetPeer, Stream: fault.Upstream, Toxicity: 30, Timeout: 2 * time.Second},
				{Kind: fault.Timeout, Stream: fault.Downstream, Toxicity: 7},
			},
		},
		"bytes and KB/s": {
			toxics: []fault.Toxic{
				{Kind: fault.LimitData, Stream: fault.Downstream, Toxicity: 100, Bytes: 200},
				{Kind: fault.Bandwidth, Stream: fault.Downstream, Toxicity: 100, Rate: 1_250_000},
			},
			want: `{"deadline_unix_ns":1000000005,"enabled":true,"toxics":[` +
				`{"name":"netemd-fault-limit_data_downstream","type":"limit_data","stream":"downstream","toxicity":1,"attributes":{"bytes":200}},` +
				`{"name":"netemd-fault-bandwidth_downstream","type":"bandwidth","stream":"downstream","toxicity":1,"attributes":{"rate":1250}}]}`,
			back: []fault.Toxic{
				{Kind: fault.LimitData, Stream: fault.Downstream, Toxicity: 100, Bytes: 200},
				{Kind: fault.Bandwidth, Stream: fault.Downstream, Toxicity: 100, Rate: 1_250_000},
			},
		},
		"milliseconds before a close": {
			toxics: []fault.Toxic{{Kind: fault.SlowClose, Stream: fault.Upstream, Toxicity: 100, Delay: 1500 * time.Millisecond}},
			want: `{"deadline_unix_ns":1000000005,"enabled":true,"toxics":[{"name":"netemd-fault-slow_close_upstream","type":"slow_close","stream":"upstream",` +
				`"toxicity":1,"attributes":{"delay":1500}}]}`,
			back: []fault.Toxic{{Kind: fault.SlowClose, Stream: fault.Upstream, Toxicity: 100, Delay: 1500 * time.Millisecond}},
		},
		"drawn by a seed": {
			toxics: []fault.Toxic{
				{Kind: fault.Latency, Stream: fault.Upstream, Toxicity: 7, Seed: 1<<64 - 1, Latency: time.Second},
				{Kind: fault.ResetPeer, Stream: fault.Downstream, Toxicity: 30, Seed: 5, Timeout: time.Second},
			},
			want: `{"deadline_unix_ns":1000000005,"enabled":true,"toxics":[` +
				`{"name":"netemd-fault-latency_upstream","type":"netemd_drawn_buffered","stream":"upstream","toxicity":1,"attributes":` +
				`{"kind":"latency","key":"latency_upstream","seed":18446744073709551615,"share":0.07,"inner":{"latency":1000,"jitter":0}}},` +
				`{"name":"netemd-fault-reset_peer_downstream","type":"netemd_drawn","stream":"downstream","toxicity":1,"attributes":` +
				`{"kind":"reset_peer","key":"reset_peer_downstream","seed":5,"share":0.3,"inner":{"timeout":1000}}},` +
				`{"name":"netemd-fault-reset_peer_downstream-linger","type":"reset_peer","stream":"downstream","toxicity":0,"attributes":{"timeout":1000}}]}`,
			back: []fault.Toxic{
				{Kind: fault.Latency, Stream: fault.Upstream, Toxicity: 7, Seed: 1<<64 - 1, Latency: time.Second},
				{Kind: fault.ResetPeer, Stream: fault.Downstream, Toxicity: 30, Seed: 5, Timeout: time.Second},
			},
		},
		"microseconds between slices": {
			toxics: []fault.Toxic{{Kind: fault.Slicer, Stream: fault.Upstream, Toxicity: 100, AverageSize: 64, SizeVariation: 32, Delay: 1500 * time.Microsecond}},
			want: `{"deadline_unix_ns":1000000005,"enabled":true,"toxics":[{"name":"netemd-fault-slicer_upstream","type":"slicer","stream":"upstream",` +
				`"toxicity":1,"attributes":{"average_size":64,"size_variation":32,"delay":1500}}]}`,
			back: []fault.Toxic{{Kind: fault.Slicer, Stream: fault.Upstream, Toxicity: 100, AverageSize: 64, SizeVariation: 32, Delay: 1500 * time.Microsecond}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := newOrder(c.toxics, deadline)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(o)
			if d := cmp.Diff(c.want, string(got)); d != "" || err != nil {
				t.Errorf("sent (-want +got): %s\n%v", d, err)
			}
			if d := cmp.Diff(c.back, fromWire(toWire(c.toxics))); d != "" {
				t.Errorf("read back (-want +got): %s", d)
			}
		})
	}
}

// Somebody else's toxic is seen, and so is the float32 that Toxiproxy keeps.
func TestForeignAnswers(t *testing.T) {
	var w wireToxic
	if err := json.Unmarshal([]byte(`{"name":"x","type":"noop","stream":"upstream","toxicity":0.07000000029802322,"attributes":{"delay":5}}`), &w); err != nil {
		t.Fatal(err)
	}
	want := []fault.Toxic{{Kind: fault.Down}, {Kind: "noop", Stream: fault.Upstream, Toxicity: 7}}
	if d := cmp.Diff(want, fromWire([]wireToxic{w}, false)); d != "" {
		t.Errorf("(-want +got): %s", d)
	}
}
