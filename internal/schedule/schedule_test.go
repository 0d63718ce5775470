package schedule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/qdisc"
)

func loss(p qdisc.Percent) Impairment { return Impairment{Packet: qdisc.Netem{Loss: p}} }

func delay(d time.Duration) Impairment { return Impairment{Packet: qdisc.Netem{Delay: d}} }

// lines are the moments of s up to a time, as people read them.
func lines(s Schedule, until time.Duration) []string {
	var out []string
	for c := s.Begin(); ; {
		m := c.Moment()
		end := "end"
		if !m.Last() {
			end = m.End.String()
		}
		what := m.Packet.String()
		if m.PacketFrom != nil {
			what += " / " + m.PacketFrom.String()
		}
		if m.Over {
			what = "over"
		}
		out = append(out, fmt.Sprintf("%d: round %d step %d %v..%s %s", m.Number, m.Round, m.Step, m.Begin, end, what))
		if m.Begin >= until || !c.Next() {
			return out
		}
	}
}

func TestTimetable(t *testing.T) {
	back := qdisc.Netem{Loss: 1}
	for name, c := range map[string]struct {
		s     Schedule
		until time.Duration
		want  string
	}{
		"steps": {Schedule{Steps: []Step{{For: time.Second}, {For: 2 * time.Second, Impairment: loss(100)}, {For: time.Second}}}, time.Hour, `
1: round 1 step 1 0s..1s none
2: round 1 step 2 1s..3s loss 100%
3: round 1 step 3 3s..4s none
4: round 1 step 3 4s..end over`},
		"open end": {Schedule{Steps: []Step{{For: time.Second, Impairment: loss(5)}, {Impairment: loss(10)}}}, time.Hour, `
1: round 1 step 1 0s..1s loss 5%
2: round 1 step 2 1s..end loss 10%`},
		"two rounds": {Schedule{Rounds: 2, Steps: []Step{{For: time.Second, Impairment: loss(5)}, {For: time.Second}}}, time.Hour, `
1: round 1 step 1 0s..1s loss 5%
2: round 1 step 2 1s..2s none
3: round 2 step 1 2s..3s loss 5%
4: round 2 step 2 3s..4s none
5: round 2 step 2 4s..end over`},
		"for ever": {Schedule{Rounds: Forever, Steps: []Step{{For: time.Second, Impairment: loss(5)}, {For: time.Second}}}, 3 * time.Second, `
1: round 1 step 1 0s..1s loss 5%
2: round 1 step 2 1s..2s none
3: round 2 step 1 2s..3s loss 5%
4: round 2 step 2 3s..4s none`},
		"ramp": {Schedule{Steps: []Step{{For: 2 * time.Second, Impairment: delay(0), Ramp: &Ramp{To: delay(100 * time.Millisecond), Every: 500 * time.Millisecond}}}}, time.Hour, `
1: round 1 step 1 0s..500ms none
2: round 1 step 1 500ms..1s delay 33.333ms
3: round 1 step 1 1s..1.5s delay 66.667ms
4: round 1 step 1 1.5s..2s delay 100ms
5: round 1 step 1 2s..end over`},
		"ramp down, of both": {Schedule{Steps: []Step{{For: 300 * time.Millisecond, Impairment: Impairment{Packet: qdisc.Netem{Loss: 9}, PacketFrom: &back},
			Ramp: &Ramp{To: loss(3), Every: 100 * time.Millisecond}}}}, time.Hour, `
1: round 1 step 1 0s..100ms loss 9% / loss 1%
2: round 1 step 1 100ms..200ms loss 6% / loss 2%
3: round 1 step 1 200ms..300ms loss 3% / loss 3%
4: round 1 step 1 300ms..end over`},
		"flapping, cut": {Schedule{Steps: []Step{{For: 2500 * time.Millisecond, Impairment: loss(100), Flap: &Flap{Period: time.Second, Duty: 25}}}}, time.Hour, `
1: round 1 step 1 0s..250ms loss 100%
2: round 1 step 1 250ms..1s none
3: round 1 step 1 1s..1.25s loss 100%
4: round 1 step 1 1.25s..2s none
5: round 1 step 1 2s..2.25s loss 100%
6: round 1 step 1 2.25s..2.5s none
7: round 1 step 1 2.5s..end over`},
		"flapping to the end": {Schedule{Steps: []Step{{Impairment: loss(100), Flap: &Flap{Period: time.Second, Duty: 50}}}}, time.Second, `
1: round 1 step 1 0s..500ms loss 100%
2: round 1 step 1 500ms..1s none
3: round 1 step 1 1s..1.5s loss 100%`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.s.Validate(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(strings.TrimSpace(c.want), "\n"), lines(c.s, c.until)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A ramp keeps what refines a number, and ends where it was said.
func TestRampOfMany(t *testing.T) {
	end := qdisc.Netem{Delay: 100 * time.Millisecond, Jitter: 20 * time.Millisecond, DelayCorrelation: 25, Distribution: qdisc.Normal, Loss: 7, LossCorrelation: 10, Rate: 1e6}
	begin := qdisc.Netem{Rate: 2e6}
	s := Schedule{Steps: []Step{{For: time.Second, Impairment: Impairment{Packet: begin}, Ramp: &Ramp{To: Impairment{Packet: end}}}}}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := s.At(0).Packet; got != begin {
		t.Errorf("begins with %v", got)
	}
	mid := qdisc.Netem{Delay: 44444 * time.Microsecond, Jitter: 8889 * time.Microsecond, DelayCorrelation: 11.1111, Distribution: qdisc.Normal, Loss: 3.1111, LossCorrelation: 4.4444, Rate: 1_555_500}
	if got := s.At(400 * time.Millisecond).Packet; got != mid {
		t.Errorf("between %v, want %v", got, mid)
	}
	if got := s.At(999 * time.Millisecond).Packet; got != end {
		t.Errorf("ends with %v", got)
	}
}

func TestLength(t *testing.T) {
	s := Schedule{Rounds: 3, Steps: []Step{{For: time.Second}, {For: time.Second, Impairment: loss(5)}}}
	if d, ok := s.Length(); d != 6*time.Second || !ok {
		t.Errorf("%v, %v", d, ok)
	}
	s.Jitter, s.Seed = 50, 7
	d, ok := s.Length()
	if !ok || d == 6*time.Second || d < 3*time.Second || d > 9*time.Second {
		t.Errorf("with jitter %v, %v", d, ok)
	}
	if again, _ := s.Length(); again != d {
		t.Errorf("%v, then %v", d, again)
	}
	s.Seed = 8
	if other, _ := s.Length(); other == d {
		t.Error("another seed gives the same times")
	}
	s.Rounds = Forever
	if _, ok := s.Length(); ok {
		t.Error("for ever has a length")
	}
}

func TestCover(t *testing.T) {
	s := Schedule{Steps: []Step{
		{For: time.Second, Impairment: loss(5)},
		{For: time.Second, Impairment: delay(0), Ramp: &Ramp{To: delay(time.Second)}},
		{For: time.Second, Impairment: Impairment{Packet: qdisc.Netem{Loss: 9}, PacketFrom: &qdisc.Netem{Rate: 1e6}}},
	}}
	to, from := s.Cover()
	if to != (qdisc.Netem{Loss: 5, Delay: time.Second}) || from != (qdisc.Netem{Loss: 5, Delay: time.Second, Rate: 1e6}) {
		t.Errorf("%v and %v", to, from)
	}
}

func TestRefused(t *testing.T) {
	second := time.Second
	for want, s := range map[string]Schedule{
		`steps "0": want 1 to 1000 steps`:                              {},
		`steps: want an impairment in one of them`:                     {Steps: []Step{{For: second}}},
		`steps[0].for: want how long the step takes`:                   {Steps: []Step{{Impairment: loss(1)}, {For: second}}},
		`steps[1].for: want how long`:                                  {Rounds: 2, Steps: []Step{{For: second}, {Impairment: loss(1)}}},
		`steps[0].for "10ms": want a time from 50ms to 24h`:            {Steps: []Step{{For: 10 * time.Millisecond, Impairment: loss(1)}}},
		`steps[0].impairment.loss "101%": want a percentage`:           {Steps: []Step{{For: second, Impairment: loss(101)}}},
		`steps[0].impairment_from.loss "-1%": want`:                    {Steps: []Step{{For: second, Impairment: Impairment{PacketFrom: &qdisc.Netem{Loss: -1}}}}},
		`steps[0].impairment.distribution "custom": want a shape with`: {Steps: []Step{{For: second, Impairment: Impairment{Packet: qdisc.Netem{Delay: 2, Jitter: 1, Distribution: qdisc.Custom, Samples: "ab"}}}}},
		`steps[0].every "50ms": want a time from 100ms`:                {Steps: []Step{{For: second, Impairment: loss(1), Ramp: &Ramp{To: loss(2), Every: 50 * time.Millisecond}}}},
		`steps[0].every "100ms": want at most 10000 changes`:           {Steps: []Step{{For: time.Hour, Impairment: loss(1), Ramp: &Ramp{To: loss(2), Every: 100 * time.Millisecond}}}},
		`steps[0].for: want how long the ramp takes`:                   {Steps: []Step{{Impairment: loss(1), Ramp: &Ramp{To: loss(2)}}}},
		`steps[0].to.rate "8mbit": want a rate at both ends`:           {Steps: []Step{{For: second, Ramp: &Ramp{To: Impairment{Packet: qdisc.Netem{Rate: 1e6}}}}}},
		`steps[0].to.distribution: want the same at both ends`: {Steps: []Step{{For: second, Impairment: Impairment{Packet: qdisc.Netem{Delay: 2, Jitter: 1, Distribution: qdisc.Normal}},
			Ramp: &Ramp{To: Impairment{Packet: qdisc.Netem{Delay: 2, Jitter: 1, Distribution: qdisc.Pareto}}}}}},
		`steps[0].to.loss_gemodel: want the same`:                 {Steps: []Step{{For: second, Ramp: &Ramp{To: Impairment{Packet: qdisc.Netem{GilbertElliott: qdisc.GilbertElliott{P: 1, R: 1}}}}}}},
		`steps[0].flap: want one of a ramp`:                       {Steps: []Step{{For: second, Impairment: loss(1), Ramp: &Ramp{To: loss(2)}, Flap: &Flap{Period: second, Duty: 50}}}},
		`steps[0].flap.period "10ms": want`:                       {Steps: []Step{{For: second, Impairment: loss(1), Flap: &Flap{Period: 10 * time.Millisecond, Duty: 50}}}},
		`steps[0].flap.duty "1%": want a share`:                   {Steps: []Step{{For: second, Impairment: loss(1), Flap: &Flap{Period: second, Duty: 1}}}},
		`steps[0].flap.duty "100%": want`:                         {Steps: []Step{{For: second, Impairment: loss(1), Flap: &Flap{Period: second, Duty: 100}}}},
		`steps[1].flap: want an impairment`:                       {Steps: []Step{{For: second, Impairment: loss(1)}, {For: second, Flap: &Flap{Period: second, Duty: 50}}}},
		`jitter "60%": want a share from 0% to 50%`:               {Jitter: 60, Steps: []Step{{For: second, Impairment: loss(1)}}},
		`repeat "-2": want a whole number`:                        {Rounds: -2, Steps: []Step{{For: second, Impairment: loss(1)}}},
		`repeat "90000": want rounds of 1s that take at most 24h`: {Rounds: 90_000, Steps: []Step{{For: second, Impairment: loss(1)}}},
	} {
		err := s.Validate()
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
