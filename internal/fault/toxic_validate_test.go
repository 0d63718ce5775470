package fault

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/qdisc"
)

func TestToxicValidate(t *testing.T) {
	ms := time.Millisecond
	for name, c := range map[string]struct {
		toxic Toxic
		want  []string // one line for each error
	}{
		"latency":                {toxic: Toxic{Kind: Latency, Latency: 300 * ms, Jitter: 100 * ms}},
		"all of latency's side":  {toxic: Toxic{Kind: Latency, Stream: Upstream, Toxicity: 0.0001, Latency: 24 * time.Hour}},
		"timeout":                {toxic: Toxic{Kind: Timeout, Timeout: ms}},
		"timeout for ever":       {toxic: Toxic{Kind: Timeout}},
		"reset at once":          {toxic: Toxic{Kind: ResetPeer, Stream: Downstream, Toxicity: 30}},
		"limit_data":             {toxic: Toxic{Kind: LimitData, Bytes: 1}},
		"bandwidth":              {toxic: Toxic{Kind: Bandwidth, Rate: 1000}},
		"slicer":                 {toxic: Toxic{Kind: Slicer, AverageSize: 2, SizeVariation: 1, Delay: time.Microsecond}},
		"slow_close":             {toxic: Toxic{Kind: SlowClose, Delay: 24 * time.Hour}},
		"seed":                   {toxic: Toxic{Kind: Timeout, Toxicity: 30, Seed: 7}},
		"slicer without a delay": {toxic: Toxic{Kind: Slicer, AverageSize: 1}},
		"down":                   {toxic: Toxic{Kind: Down}},
		"down, defaults given":   {toxic: Toxic{Kind: Down, Stream: Downstream, Toxicity: 100}},

		"no kind":      {Toxic{}, []string{"kind: want latency, timeout, reset_peer, limit_data, bandwidth, slicer, slow_close or down"}},
		"foreign kind": {Toxic{Kind: "noop"}, []string{`kind "noop": want latency, timeout, reset_peer, limit_data, bandwidth, slicer, slow_close or down`}},
		"stream":       {Toxic{Kind: Timeout, Stream: "both"}, []string{`stream "both": want upstream (client to server) or downstream (server to client)`}},
		"toxicity": {Toxic{Kind: Timeout, Toxicity: 101},
			[]string{`toxicity "101%": want a percentage from 0.0001% to 100%, such as 30%`}},
		"toxicity below 0": {Toxic{Kind: Timeout, Toxicity: -1},
			[]string{`toxicity "-1%": want a percentage from 0.0001% to 100%, such as 30%`}},
		"toxicity NaN": {Toxic{Kind: Timeout, Toxicity: qdisc.Percent(math.NaN())},
			[]string{`toxicity "NaN%": want a percentage from 0.0001% to 100%, such as 30%`}},
		"toxicity too fine": {Toxic{Kind: Timeout, Toxicity: 33.33333},
			[]string{`toxicity "33.33333%": want a multiple of 0.0001%, such as 33.3333% or 33.3334%`}},
		"toxicity too small": {Toxic{Kind: Timeout, Toxicity: 0.00005},
			[]string{`toxicity "0.00005%": want a multiple of 0.0001%, such as 0.0001%`}},
		"latency too fine": {Toxic{Kind: Latency, Latency: 1500 * time.Microsecond},
			[]string{`latency "1.5ms": want a multiple of 1ms, such as 1ms or 2ms`}},
		"latency missing": {Toxic{Kind: Latency}, []string{`latency "0s": want a time from 1ms to 24h, such as 300ms`}},
		"latency too long": {Toxic{Kind: Latency, Latency: 24*time.Hour + ms},
			[]string{`latency "24h0m0.001s": want a time from 1ms to 24h, such as 300ms`}},
		"jitter above latency": {Toxic{Kind: Latency, Latency: 10 * ms, Jitter: 11 * ms},
			[]string{`jitter "11ms": want at most the latency, 10ms`}},
		"negative timeout": {Toxic{Kind: Timeout, Timeout: -ms}, []string{`timeout "-1ms": want a time from 0s to 24h, such as 300ms`}},
		"timeout too fine": {Toxic{Kind: Timeout, Timeout: 10 * time.Microsecond},
			[]string{`timeout "10us": want a multiple of 1ms, such as 0s or 1ms`}},
		"slow_close at once": {Toxic{Kind: SlowClose}, []string{`delay "0s": want a time from 1ms to 24h, such as 300ms`}},
		"slow_close too fine": {Toxic{Kind: SlowClose, Delay: 1500 * time.Microsecond},
			[]string{`delay "1.5ms": want a multiple of 1ms, such as 1ms or 2ms`}},
		"seed of all": {Toxic{Kind: Timeout, Seed: 7},
			[]string{`seed "7": want nothing without a toxicity below 100%: there is nothing to draw`}},
		"seed of down": {Toxic{Kind: Down, Seed: 7},
			[]string{`seed "7": want nothing without a toxicity below 100%: there is nothing to draw`}},
		"no bytes": {Toxic{Kind: LimitData}, []string{`bytes "0B": want an amount from 1B to 1000TB`}},
		"no rate":  {Toxic{Kind: Bandwidth}, []string{`rate "0bit": want a rate from 8kbit (1 KB/s) to 800gbit`}},
		"rate too fine": {Toxic{Kind: Bandwidth, Rate: 1500},
			[]string{`rate "12kbit": want a multiple of 8kbit (1 KB/s), such as 8kbit or 16kbit`}},
		"variation as large as the slice": {Toxic{Kind: Slicer, AverageSize: 10, SizeVariation: 10},
			[]string{`size_variation "10B": want an amount from 0B to 9B`}},
		"no slice": {Toxic{Kind: Slicer}, []string{`average_size "0B": want an amount from 1B to 1GiB`}},
		"delay too fine": {Toxic{Kind: Slicer, AverageSize: 10, Delay: 1500},
			[]string{`delay "1.5us": want a multiple of 1us, such as 1us or 2us`}},
		"down has nothing": {Toxic{Kind: Down, Stream: Upstream, Toxicity: 30, Timeout: ms}, []string{
			`stream "upstream": want nothing: down refuses whole connections`,
			`toxicity "30%": want 100% or nothing: down refuses every connection`,
			`timeout "1ms": want nothing: a down toxic has no timeout`,
		}},
		"all foreign fields at once": {
			Toxic{Kind: Timeout, Latency: ms, Jitter: ms, Bytes: 1, Rate: 1000, AverageSize: 1, SizeVariation: 1, Delay: ms},
			[]string{
				`latency "1ms": want nothing: a timeout toxic has no latency`,
				`jitter "1ms": want nothing: a timeout toxic has no jitter`,
				`bytes "1B": want nothing: a timeout toxic has no bytes`,
				`rate "8kbit": want nothing: a timeout toxic has no rate`,
				`average_size "1B": want nothing: a timeout toxic has no average_size`,
				`size_variation "1B": want nothing: a timeout toxic has no size_variation`,
				`delay "1ms": want nothing: a timeout toxic has no delay`,
			}},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.toxic.Validate()
			var got []string
			if err != nil {
				got = strings.Split(err.Error(), "\n")
				if !errors.Is(err, qdisc.ErrInvalid) {
					t.Error("is no qdisc.ErrInvalid")
				}
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got): %s", d)
			}
		})
	}
}

// Every toxicity of up to four decimals is allowed, whatever its binary form.
func TestToxicityResolution(t *testing.T) {
	for i := 1; i <= 1_000_000; i += 7 {
		p := qdisc.Percent(float64(i) / 10_000)
		if err := (Toxic{Kind: Timeout, Toxicity: p}).Validate(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestToxicNormalize(t *testing.T) {
	for _, c := range []struct{ toxic, want Toxic }{
		{Toxic{Kind: Timeout}, Toxic{Kind: Timeout, Stream: Downstream, Toxicity: 100}},
		{Toxic{Kind: Timeout, Stream: Upstream, Toxicity: 5}, Toxic{Kind: Timeout, Stream: Upstream, Toxicity: 5}},
		{Toxic{Kind: Down, Stream: Downstream, Toxicity: 100}, Toxic{Kind: Down}},
	} {
		if d := cmp.Diff(c.want, c.toxic.Normalize()); d != "" {
			t.Errorf("(-want +got): %s", d)
		}
	}
}

func TestNormalizeToxics(t *testing.T) {
	got := NormalizeToxics([]Toxic{
		{Kind: Timeout}, {Kind: Latency, Stream: Upstream}, {Kind: Slicer}, {Kind: Down}, {Kind: Slicer, Stream: Upstream},
	})
	want := []Toxic{
		{Kind: Down}, {Kind: Latency, Stream: Upstream, Toxicity: 100}, {Kind: Slicer, Stream: Upstream, Toxicity: 100},
		{Kind: Timeout, Stream: Downstream, Toxicity: 100}, {Kind: Slicer, Stream: Downstream, Toxicity: 100},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got): %s", d)
	}
	if got := NormalizeToxics(nil); got != nil {
		t.Errorf("of nothing: %v", got)
	}
}
