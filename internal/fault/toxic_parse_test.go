package fault

import (
	"errors"
	"strings"
	"testing"
	"time"

	"netemd/qdisc"
)

func TestParseToxic(t *testing.T) {
	for text, want := range map[string]Toxic{
		"down":                                   {Kind: Down},
		"reset_peer":                             {Kind: ResetPeer},
		"latency latency=300ms jitter=20ms to":   {Kind: Latency, Latency: 300 * time.Millisecond, Jitter: 20 * time.Millisecond, Stream: Upstream},
		"timeout timeout=5s direction=from":      {Kind: Timeout, Timeout: 5 * time.Second, Stream: Downstream},
		"bandwidth rate=100KBps toxicity=30%":    {Kind: Bandwidth, Rate: 100_000, Toxicity: 30},
		"limit_data bytes=64KiB stream=upstream": {Kind: LimitData, Bytes: 64 << 10, Stream: Upstream},
		"slicer average-size=64B size_variation=3B delay=10us downstream": {Kind: Slicer, AverageSize: 64, SizeVariation: 3, Delay: 10 * time.Microsecond, Stream: Downstream},
	} {
		if got, err := ParseToxic(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                                "KIND with KEY=VALUE",
		"frob":                            "latency, timeout, reset_peer",
		"latency":                         "latency",
		"latency latency=300":             "latency",
		"latency latency=1ms latency=2ms": "each key once",
		"latency latency=1ms sideways":    "upstream or to",
		"latency latency=1ms rate=1mbit":  "a latency toxic has no rate",
		"latency latency=1ms x=1":         "one of latency, jitter",
		"latency latency=1ms toxicity=0%": "a share above 0%",
		"bandwidth rate=100":              "rate",
		"down upstream":                   "down refuses whole connections",
	} {
		_, err := ParseToxic(text)
		if _, ok := errors.AsType[*qdisc.FieldError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
