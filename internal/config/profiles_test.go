package config

import (
	"strings"
	"testing"
	"time"
)

func TestProfiles(t *testing.T) {
	c, err := Parse([]byte("profiles:\n  office: {summary: the line, uplink: {delay: 12ms, rate: 8mbit, queue: 100ms}}\n  far: {both: delay 50ms}\n"))
	if err != nil {
		t.Fatal(err)
	}
	all := c.ProfileList()
	if len(all) != 2 || all[0].Name != "office" || all[0].Uplink.Rate != 1e6 || !all[0].Downlink.IsZero() || all[1].Downlink.Delay != 50*time.Millisecond {
		t.Errorf("%+v", all)
	}
	text, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse(text); err != nil || len(again.ProfileList()) != 2 || again.ProfileList()[0].Uplink != all[0].Uplink {
		t.Errorf("%v, of\n%s", err, text)
	}
	for text, want := range map[string]string{
		"profiles: {3g: {both: delay 1ms}}":            `1:12: profiles.3g: "3g" is the name of a built-in profile, want another one`,
		"profiles: {x.yaml: {both: delay 1ms}}":        `profiles."x.yaml": "x.yaml" is not valid, want a profile's name`,
		"profiles:\n  x: {up: {loss: 1%}}":             `2:7: profiles.x.up: is an unknown key, want one of summary, both, uplink, downlink, source`,
		"profiles:\n  x: {summary: y}":                 `2:3: profiles.x.both: is missing, want an impairment`,
		"profiles:\n  x: {both: {delay: 1}}":           `2:14: profiles.x.both.delay: "1" is not valid`,
		"profiles:\n  x: {both: {delay: 1ms, gap: 3}}": `2:26: profiles.x.both.gap: "3" is not valid, want a reorder share`,
	} {
		_, err := Parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
	}
}
