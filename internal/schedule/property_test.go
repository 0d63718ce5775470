package schedule

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"netemd/qdisc"
)

// schedules draws valid ones.
func schedules(t *rapid.T) Schedule {
	milliseconds := func(least, most int, name string) time.Duration {
		return time.Duration(rapid.IntRange(least, most).Draw(t, name)) * time.Millisecond
	}
	s := Schedule{
		Jitter: qdisc.Percent(rapid.IntRange(0, 50).Draw(t, "jitter")), Seed: rapid.Uint64().Draw(t, "seed"),
		Rounds: rapid.SampledFrom([]int{Forever, 0, 1, 2, 5}).Draw(t, "rounds"),
	}
	n := rapid.IntRange(1, 5).Draw(t, "steps")
	for range n {
		step := Step{For: milliseconds(50, 5000, "for"), Impairment: loss(qdisc.Percent(rapid.IntRange(1, 100).Draw(t, "loss")))}
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 1:
			step.For = max(step.For, MinEvery)
			step.Ramp = &Ramp{To: loss(qdisc.Percent(rapid.IntRange(0, 100).Draw(t, "to"))), Every: min(step.For, milliseconds(100, 700, "every"))}
		case 2:
			step.For += 200 * time.Millisecond
			step.Flap = &Flap{Period: min(step.For, milliseconds(200, 2000, "period")), Duty: qdisc.Percent(rapid.IntRange(25, 75).Draw(t, "duty"))}
		}
		s.Steps = append(s.Steps, step)
	}
	return s
}

// Whatever the schedule, its moments leave no time out and none twice, and a cursor that
// jumps comes to the same one as a cursor that goes step by step.
func TestCursorGoesThroughAllTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := schedules(t)
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		jumping := s.Begin()
		walking := s.Begin()
		for range 200 {
			before := walking.Moment()
			if !walking.Next() {
				break
			}
			m := walking.Moment()
			if m.Number != before.Number+1 || m.Begin != before.End || !m.Last() && m.End <= m.Begin {
				t.Fatalf("%+v after %+v", m, before)
			}
			if err := m.Packet.Validate(); err != nil {
				t.Fatalf("%v: %v", m.Packet, err)
			}
			if rapid.Bool().Draw(t, "jump") {
				at := m.Begin
				if !m.Last() {
					at += time.Duration(rapid.Int64Range(0, int64(m.End-m.Begin)-1).Draw(t, "within"))
				}
				was := jumping.Moment().Number
				passed := jumping.To(at)
				if got := jumping.Moment(); got != m || passed != m.Number-was-1 {
					t.Fatalf("at %v %+v, %d passed since %d, want %+v", at, got, passed, was, m)
				}
				if jumping.To(at) != 0 || jumping.Moment() != m {
					t.Fatal("it goes on without time")
				}
				if got := s.At(at); got != m {
					t.Fatalf("At(%v) %+v, want %+v", at, got, m)
				}
			}
		}
		if length, ends := s.Length(); ends {
			if m := s.At(length); !m.Over || !m.IsZero() || m.Begin != length {
				t.Fatalf("at its end, %v: %+v", length, m)
			}
			if length > 0 && s.At(length-1).Over {
				t.Fatal("it is over before its end")
			}
		} else if s.At(time.Hour).Over {
			t.Fatal("what has no end is over")
		}
	})
}

// With jitter each time stays within its share of what was said.
func TestJitterIsBounded(t *testing.T) {
	s := Schedule{Rounds: Forever, Jitter: 20, Seed: 3, Steps: []Step{{For: time.Second, Impairment: loss(5)}}}
	c := s.Begin()
	low, high := time.Hour, time.Duration(0)
	var sum time.Duration
	const n = 20_000
	for range n {
		m := c.Moment()
		low, high, sum = min(low, m.End-m.Begin), max(high, m.End-m.Begin), sum+m.End-m.Begin
		c.Next()
	}
	// The mean of n uniform draws is within 6 standard deviations, 0.4/sqrt(12 n) s each.
	if low < 800*time.Millisecond || high > 1200*time.Millisecond || low > 805*time.Millisecond || high < 1195*time.Millisecond ||
		(sum/n-time.Second).Abs() > 5*time.Millisecond {
		t.Errorf("from %v to %v, mean %v", low, high, sum/n)
	}
}
