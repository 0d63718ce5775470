package profile

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/qdisc"
)

func TestParse(t *testing.T) {
	got, err := Parse("office.yaml", []byte(`
profile: office
summary: the office's line
source: measured on a Monday
uplink: {delay: 20ms, rate: 8mbit, queue: 100ms}
downlink: {delay: 10ms}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := Profile{
		Name: "office", Summary: "the office's line", Sources: []Source{{Title: "measured on a Monday"}},
		Uplink:   qdisc.Netem{Delay: 20 * time.Millisecond, Rate: 1e6, Limit: qdisc.LimitForQueue(1e6, 120*time.Millisecond)},
		Downlink: qdisc.Netem{Delay: 10 * time.Millisecond},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err = Parse("", []byte("profile: x\nboth: loss 1%"))
	if err != nil || !got.Symmetric() || got.Uplink.Loss != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"both: loss 1%":                              "x.yaml:1:1: profile: is missing, want the profile's name",
		"profile: x":                                 "x.yaml:1:1: both: is missing, want an impairment of both directions",
		"profile: a/b\nboth: loss 1%":                `x.yaml:1:1: profile: "a/b" is not valid, want a profile's name`,
		"profile: 3g\nboth: loss 1%":                 `x.yaml:1:1: profile: "3g" is the name of a built-in profile, want another one`,
		"profile: x\nboth: loss 1%\nuplink: loss 1%": `x.yaml:2:1: both: stands beside uplink or downlink, want it alone`,
		"profile: x\nuplink: {jitter: 1ms}":          `x.yaml:2:10: uplink.jitter: "1ms" is not valid, want a delay`,
		"profile: x\nuplink: {loss: 0%}":             `x.yaml:2:1: uplink: impairs nothing`,
		"profile: x\nup: {loss: 1%}\nboth: loss 1%":  `x.yaml:2:1: up: is an unknown key, want one of profile, summary, both, uplink, downlink, source`,
	} {
		_, err := Parse("x.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
	}
}
