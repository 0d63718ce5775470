package timetable

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/profile"
	"netemd/internal/schedule"
	"netemd/qdisc"
)

func builtin(name string) (profile.Profile, error) {
	if p, ok := profile.Find(name); ok {
		return p, nil
	}
	return profile.Profile{}, fmt.Errorf("one of %s", strings.Join(profile.Names(), ", "))
}

const whole = `
schedule: brownout
repeat: forever
jitter: 10%
seed: 7
steps:
  - {for: 10s}
  - {for: 20s, impairment: {loss: 5%, delay: 20ms}, impairment_from: {loss: 1%}}
  - {for: 30s, ramp: {end: {loss: 50%}, every: 1s}}
  - {at: 60s, for: 4s, ramp: {begin: "loss 2%", end: {loss: 0%}, begin_from: {loss: 3%}, end_from: {loss: 4%}}}
  - {for: 20s, impairment: {loss: 100%}, flap: {period: 2s, duty: 25%}}
  - {for: 10s, profile: 3g}
  - {for: 1s, profile: cross-az}
`

func TestParse(t *testing.T) {
	got, err := Parse("x.yaml", []byte(whole), builtin)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := profile.Find("3g")
	second := schedule.Impairment{Packet: qdisc.Netem{Loss: 5, Delay: 20 * time.Millisecond}, PacketFrom: &qdisc.Netem{Loss: 1}}
	loss := func(share qdisc.Percent) schedule.Impairment {
		return schedule.Impairment{Packet: qdisc.Netem{Loss: share}}
	}
	want := schedule.Schedule{Name: "brownout", Rounds: schedule.Forever, Jitter: 10, Seed: 7, Steps: []schedule.Step{
		{For: 10 * time.Second},
		{For: 20 * time.Second, Impairment: second},
		{For: 30 * time.Second, Impairment: second, Ramp: &schedule.Ramp{To: loss(50), Every: time.Second}},
		{For: 4 * time.Second, Impairment: schedule.Impairment{Packet: qdisc.Netem{Loss: 2}, PacketFrom: &qdisc.Netem{Loss: 3}},
			Ramp: &schedule.Ramp{To: schedule.Impairment{PacketFrom: &qdisc.Netem{Loss: 4}}}},
		{For: 20 * time.Second, Impairment: loss(100), Flap: &schedule.Flap{Period: 2 * time.Second, Duty: 25}},
		{For: 10 * time.Second, Impairment: schedule.Impairment{Packet: p.Uplink, PacketFrom: &p.Downlink}},
		{For: time.Second, Impairment: schedule.Impairment{Packet: qdisc.Netem{Delay: time.Millisecond}}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A step lasts until the next one begins, and the last one to the end.
func TestTimes(t *testing.T) {
	got, err := Parse("", []byte("steps: [{impairment: {loss: 1%}}, {at: 10s}, {at: 30s, for: 5s, impairment: {loss: 2%}}, {impairment: {loss: 3%}}]"), builtin)
	if err != nil {
		t.Fatal(err)
	}
	var times []time.Duration
	for _, s := range got.Steps {
		times = append(times, s.For)
	}
	if diff := cmp.Diff([]time.Duration{10 * time.Second, 20 * time.Second, 5 * time.Second, 0}, times); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		``:          `x.yaml:1:1: steps: is missing, want a list of steps`,
		`steps: []`: `x.yaml:1:1: steps: is empty, want a list of steps`,
		`step: [{for: 1s}]`: `x.yaml:1:1: step: is an unknown key, want one of schedule, repeat, jitter, seed, steps
x.yaml:1:1: steps: is missing, want a list of steps, such as [{for: 10s, impairment: {loss: 5%}}]`,
		`steps: [{for: 10}]`:                               `x.yaml:1:10: steps[0].for: "10" is not valid, want how long the step takes, such as 10s`,
		`steps: [{for: 1s}]`:                               `x.yaml:1:1: steps: is not valid, want an impairment in one of them at least`,
		`steps: [{for: 1s, los: 5%}]`:                      `x.yaml:1:19: steps[0].los: is an unknown key, want one of at, for, impairment,`,
		"steps:\n  - {for: 1s, impairment: {loss: 5}}":     `x.yaml:2:28: steps[0].impairment.loss: "5" is not valid, want a percentage`,
		"steps:\n  - {for: 1s, impairment: {jitter: 5ms}}": `x.yaml:2:28: steps[0].impairment.jitter: "5ms" is not valid, want a delay that it varies`,
		"steps:\n  - {for: 1s, impairment: {delay: 2s}, impairment_from: {reorder: 5%}}":  `x.yaml:2:58: steps[0].impairment_from.reorder: "5%" is not valid, want a delay`,
		`steps: [{impairment: {loss: 1%}}, {for: 1s}]`:                                    `x.yaml:1:9: steps[0].for: is missing, want how long the step takes, such as 10s, or when the next one begins`,
		`steps: [{at: 1s, impairment: {loss: 1%}}]`:                                       `x.yaml:1:10: steps[0].at: "1s" is not valid, want 0s for the first step`,
		`steps: [{for: 2s, impairment: {loss: 1%}}, {at: 3s}]`:                            `x.yaml:1:45: steps[1].at: "3s" is not valid, want 2s, when the step before ends`,
		`steps: [{impairment: {loss: 1%}}, {at: 3s}, {at: 3s}]`:                           `x.yaml:1:46: steps[2].at: "3s" is not valid, want a time after 3s, when the step before begins`,
		`steps: [{for: 10ms, impairment: {loss: 1%}}]`:                                    `x.yaml:1:10: steps[0].for: "10ms" is not valid, want a time from 50ms to 24h`,
		`steps: [{for: 1s, profile: 5g}]`:                                                 `x.yaml:1:19: steps[0].profile: "5g" is not valid, want one of dialup, edge,`,
		`steps: [{for: 1s, profile: 3g, impairment: {loss: 1%}}]`:                         `x.yaml:1:19: steps[0].profile: "3g" is not valid, want a profile or an impairment, not both`,
		`steps: [{for: 1s, ramp: {begin: {loss: 1%}}}]`:                                   `x.yaml:1:19: steps[0].ramp.end: is missing, want`,
		`steps: [{for: 1s, ramp: {end: {loss: 1%}, every: 10ms}}]`:                        `x.yaml:1:43: steps[0].ramp.every: "10ms" is not valid, want a time from 100ms`,
		`steps: [{for: 1s, ramp: {end: {loss: 1%}, every: 0s}}]`:                          `x.yaml:1:43: steps[0].ramp.every: "0s" is not valid, want a time from 100ms`,
		`steps: [{for: 1s, ramp: {end: {rate: 1mbit}}}]`:                                  `x.yaml:1:32: steps[0].ramp.end.rate: "1mbit" is not valid, want a rate at both ends`,
		`steps: [{for: 1s, ramp: {end: {loss: 1%}}, impairment: {loss: 2%}}]`:             `x.yaml:1:19: steps[0].ramp: is not valid, want the impairments at its begin and end, and none beside it`,
		`steps: [{ramp: {end: {loss: 1%}}}]`:                                              `x.yaml:1:9: steps[0].for: is missing, want how long the ramp takes`,
		`steps: [{for: 9s, impairment: {loss: 1%}, flap: {period: 50ms, duty: 50%}}]`:     `x.yaml:1:50: steps[0].flap.period: "50ms" is not valid, want a time from 100ms`,
		`steps: [{for: 9s, impairment: {loss: 1%}, flap: {period: 1s, duty: 1%}}]`:        `x.yaml:1:62: steps[0].flap.duty: "1%" is not valid, want a share that leaves 50ms`,
		`steps: [{for: 9s, impairment: {loss: 1%}, flap: {period: 1s}}]`:                  `x.yaml:1:43: steps[0].flap.duty: is missing, want the share`,
		`steps: [{for: 9s, flap: {period: 1s, duty: 50%}}, {impairment: {loss: 1%}}]`:     `x.yaml:1:19: steps[0].flap: is not valid, want an impairment beside it`,
		"repeat: always\nsteps: [{for: 1s, impairment: {loss: 1%}}]":                      `x.yaml:1:1: repeat: "always" is not valid, want a whole number from 1, or forever`,
		"repeat: 0\nsteps: [{for: 1s, impairment: {loss: 1%}}]":                           `x.yaml:1:1: repeat: "0" is not valid`,
		"repeat: 90000\nsteps: [{for: 1s, impairment: {loss: 1%}}]":                       `x.yaml:1:1: repeat: "90000" is not valid, want rounds of 1s that take at most 24h`,
		"repeat: 2\nsteps: [{for: 1s}, {impairment: {loss: 1%}}]":                         `x.yaml:2:20: steps[1].for: is missing, want how long the step takes`,
		"jitter: 51%\nsteps: [{for: 1s, impairment: {loss: 1%}}]":                         `x.yaml:1:1: jitter: "51%" is not valid, want a share from 0% to 50%`,
		"steps: [{for: 1s, impairment: {loss: 1%}}]\nsteps: []":                           `x.yaml:2:1: steps: is there already, at 1:1, want it once`,
		"steps: [{for: 1s, impairment: {distribution: custom, delay: 2ms, jitter: 1ms}}]": `x.yaml:1:54: steps[0].impairment.delay: `,
	} {
		_, err := Parse("x.yaml", []byte(text), builtin)
		if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%s:\n%v, want\n%s", text, err, want)
		}
	}
}

// All mistakes are told at once.
func TestAllMistakes(t *testing.T) {
	_, err := Parse("", []byte("jitter: 5\nsteps:\n  - {for: 1, impairment: {loss: 5}}\n  - {fo: 1s}\n"), builtin)
	if lines := strings.Split(fmt.Sprint(err), "\n"); len(lines) != 4 {
		t.Errorf("%d mistakes:\n%v", len(lines), err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(whole)
	f.Add("steps: [{impairment: {loss: 1%}}, {at: 3s}]")
	f.Add("steps: [{ramp: {end: {loss: 1%}}}]")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("", []byte(text), builtin)
		if err != nil {
			return
		}
		if err := s.Validate(); err != nil {
			t.Errorf("it is not valid: %v", err)
		}
		c := s.Begin()
		for range 100 {
			c.Next()
		}
	})
}
