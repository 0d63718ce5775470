package schedule

import (
	"math/rand/v2"
	"time"
)

// Moment is what stands between two changes.
type Moment struct {
	// Number counts all from 1: each change of a ramp or of flapping is one. After the last
	// it is that of the end.
	Number uint64
	// Step is the one of Schedule.Steps, from 1, and Round the how manieth time, from 1.
	Step, Round int
	Impairment
	// Begin and End are since the beginning of the schedule. End is 0 where it lasts until
	// the fault ends.
	Begin, End time.Duration
	// Over says that the schedule has ended: nothing is impaired any more.
	Over bool
}

// Last reports whether nothing follows m.
func (m Moment) Last() bool { return m.End == 0 }

// Cursor goes through a Schedule, forward only. It is not safe for concurrent use.
type Cursor struct {
	s Schedule
	// spans are those of the present step, Forever for no end; span is the one of them.
	spans, span int
	now         Moment
	draw        *rand.PCG
}

// stream tells the draws of a schedule's times from those of others with the same seed.
const stream = 0x7363686564756c65 // "schedule"

// Begin is at the beginning of s, which is valid.
func (s Schedule) Begin() *Cursor {
	c := &Cursor{s: s, now: Moment{Number: 1, Step: 1, Round: 1}, draw: rand.NewPCG(s.Seed, stream)}
	c.spans = s.Steps[0].spans()
	c.fill()
	return c
}

// At is what s has in force at a time since it began: the same for the same schedule,
// whoever asks.
func (s Schedule) At(t time.Duration) Moment {
	c := s.Begin()
	c.To(t)
	return c.Moment()
}

// Moment is the present one.
func (c *Cursor) Moment() Moment { return c.now }

// To goes on to what is in force at t, and says how many moments it came through, without
// the one where it is now. It does not go back.
func (c *Cursor) To(t time.Duration) (passed uint64) {
	first := c.now.Number
	for !c.now.Last() && c.now.End <= t {
		c.Next()
	}
	if c.now.Number == first {
		return 0
	}
	return c.now.Number - first - 1
}

// Next goes on by one change; false at the end.
func (c *Cursor) Next() bool {
	if c.now.Last() {
		return false
	}
	m := &c.now
	m.Number++
	m.Begin = m.End
	c.span++
	if c.span == c.spans {
		c.span = 0
		m.Step++
		if m.Step > len(c.s.Steps) {
			m.Step = 1
			m.Round++
		}
		if n := c.s.rounds(); n != Forever && m.Round > n {
			m.Step, m.Round = len(c.s.Steps), n
			m.Impairment, m.End, m.Over = Impairment{}, 0, true
			return true
		}
		c.spans = c.s.Steps[m.Step-1].spans()
	}
	c.fill()
	return true
}

// fill makes the present span the moment.
func (c *Cursor) fill() {
	step := c.s.Steps[c.now.Step-1]
	var length time.Duration
	c.now.Impairment, length = step.at(c.span)
	c.now.End = 0
	if length > 0 {
		c.now.End = c.now.Begin + c.vary(length)
	}
}

// vary draws how long a span is. Each span takes one draw, so that how a cursor came to a
// moment makes no difference.
func (c *Cursor) vary(length time.Duration) time.Duration {
	if c.s.Jitter == 0 {
		return length
	}
	const scale = 1 << 53                         // as math/rand/v2.Float64
	u := 2*float64(c.draw.Uint64()>>11)/scale - 1 // -1..1
	varied := float64(length) * (1 + u*float64(c.s.Jitter)/100)
	return max(1, time.Duration(varied).Round(time.Microsecond))
}

// spans is how many changes s has, Forever for flapping without an end.
func (s Step) spans() int {
	switch {
	case s.Ramp != nil:
		return s.Ramp.changes(s.For)
	case s.Flap == nil:
		return 1
	case s.For == 0:
		return Forever
	}
	whole := int(s.For / s.Flap.Period)
	spans := 2 * whole
	switch rest := s.For - time.Duration(whole)*s.Flap.Period; {
	case rest > s.Flap.on():
		spans += 2
	case rest > 0:
		spans++
	}
	return spans
}

// at is what is in force in a span of s, and how long: 0 for no end.
func (s Step) at(span int) (Impairment, time.Duration) {
	switch {
	case s.Ramp != nil:
		n := s.spans()
		begin, end := s.For*time.Duration(span)/time.Duration(n), s.For*time.Duration(span+1)/time.Duration(n)
		return s.rampAt(span, n), end - begin
	case s.Flap == nil:
		return s.Impairment, s.For
	}
	i, length := s.Impairment, s.Flap.on()
	begin := s.Flap.Period * time.Duration(span/2)
	if span%2 == 1 {
		i, length, begin = Impairment{}, s.Flap.Period-length, begin+length
	}
	if s.For > 0 { // the last one may be cut
		length = min(length, s.For-begin)
	}
	return i, length
}
