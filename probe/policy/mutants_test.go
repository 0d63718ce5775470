package policy

import (
	"testing"

	"netemd/probe"
)

// noted is where a gate tells what it did.
type noted = func(probe.PolicyEvent)

// mutant is a breaker with one mistake: around each call of the good one, it does something
// to its state.
type mutant struct {
	*breaker
	acquired func(b *breaker, before *breaker, t *ticket, ok *bool)
	// recording may change what is recorded, or end it.
	recording func(b *breaker, t *ticket, v *verdict) (skip bool)
	recorded  func(b *breaker, before *breaker, v verdict)
}

func (m mutant) acquire(note noted) (ticket, bool) {
	before := m.copy()
	t, ok := m.breaker.acquire(note)
	if m.acquired != nil {
		m.acquired(m.breaker, before, &t, &ok)
	}
	return t, ok
}

func (m mutant) record(t ticket, v verdict, note noted) {
	before := m.copy()
	if m.recording != nil && m.recording(m.breaker, &t, &v) {
		return
	}
	m.breaker.record(t, v, note)
	if m.recorded != nil {
		m.recorded(m.breaker, before, v)
	}
}

// copy is the state without its lock: tests have one goroutine.
func (b *breaker) copy() *breaker {
	return &breaker{
		state: b.state, epoch: b.epoch, until: b.until, row: b.row, out: b.out, passed: b.passed, failed: b.failed,
	}
}

// broken are breakers as they have been written, each with one mistake.
var broken = map[string]mutant{
	"a failed probe does not open it again": {recording: func(b *breaker, _ *ticket, v *verdict) bool {
		return b.state == isHalfOpen && *v == failure
	}},
	"a failed probe gives its place back and no more": {recording: func(b *breaker, _ *ticket, v *verdict) bool {
		if b.state == isHalfOpen && *v == failure {
			*v = nothing
		}
		return false
	}},
	"the count is not reset when it closes": {recorded: func(b *breaker, before *breaker, _ verdict) {
		if before.state == isHalfOpen && b.state == isClosed {
			b.row = b.Consecutive - 1
		}
	}},
	"a success does not break the row": {recorded: func(b *breaker, before *breaker, v verdict) {
		if before.state == isClosed && b.state == isClosed && v == success {
			b.row = before.row
		}
	}},
	"it opens one too late": {recorded: func(b *breaker, before *breaker, _ verdict) {
		if before.state == isClosed && b.state == isOpen && before.row < b.Consecutive {
			b.change(isClosed)
			b.row = before.row
		}
	}},
	"it opens again without a wait": {recorded: func(b *breaker, before *breaker, _ verdict) {
		if before.state == isHalfOpen && b.state == isOpen {
			b.until = before.until
		}
	}},
	"being asked makes it wait anew": {acquired: func(b *breaker, _ *breaker, _ *ticket, ok *bool) {
		if b.state == isOpen && !*ok {
			b.until = b.clock.Now() + int64(b.Open)
		}
	}},
	"half-open lets everything through": {acquired: func(b *breaker, _ *breaker, t *ticket, ok *bool) {
		if b.state == isHalfOpen && !*ok {
			*t, *ok = ticket{b.epoch}, true
		}
	}},
	"half-open lets one too many through": {acquired: func(b *breaker, _ *breaker, t *ticket, ok *bool) {
		if b.state == isHalfOpen && !*ok && b.failed == 0 && b.out == b.Probes {
			b.out++
			*t, *ok = ticket{b.epoch}, true
		}
	}},
	"half-open lets so many through at one time, not in all": {recorded: func(b *breaker, before *breaker, _ verdict) {
		if before.state == isHalfOpen && b.state == isHalfOpen && b.Probes > b.Successes-1 {
			b.out -= b.passed - before.passed
		}
	}},
	"one success is enough": {recorded: func(b *breaker, _ *breaker, _ verdict) {
		if b.state == isHalfOpen && b.passed > 0 {
			b.change(isClosed)
		}
	}},
	"one failure is enough": {recorded: func(b *breaker, _ *breaker, _ verdict) {
		if b.state == isHalfOpen && b.failed > 0 {
			b.trip("", func(probe.PolicyEvent) {})
		}
	}},
	"what says nothing keeps its place": {recording: func(b *breaker, _ *ticket, v *verdict) bool {
		return b.state == isHalfOpen && *v == nothing
	}},
	"what says nothing is a success": {recording: func(_ *breaker, _ *ticket, v *verdict) bool {
		if *v == nothing {
			*v = success
		}
		return false
	}},
	"late results count": {recording: func(b *breaker, t *ticket, _ *verdict) bool {
		t.epoch = b.epoch
		return false
	}},
	"the window is not reset": {recorded: func(b *breaker, before *breaker, _ verdict) {
		if b.window != nil && before.state == isHalfOpen && b.state == isClosed {
			for range b.MinCalls - 1 {
				b.window.add(b.clock.Now(), true)
			}
		}
	}},
	"the ratio needs no least number": {recorded: func(b *breaker, _ *breaker, _ verdict) {
		if b.window != nil && b.state == isClosed && b.window.n > 0 && float64(b.window.failed) >= b.Ratio*float64(b.window.n) {
			b.trip("", func(probe.PolicyEvent) {})
		}
	}},
	"the ratio looks at failures alone": {recording: func(b *breaker, _ *ticket, v *verdict) bool {
		return b.window != nil && b.state == isClosed && *v == success
	}},
	"the window forgets nothing": {acquired: func(b *breaker, _ *breaker, _ *ticket, _ *bool) {
		if b.window != nil && b.window.span > 0 {
			b.window.span = 1 << 60
			b.window.number = 0
		}
	}},
}

// The histories find every mistake.
func TestHistoriesCatchBrokenBreakers(t *testing.T) {
	for name, m := range broken {
		caught := 0
		for _, h := range histories {
			err := h.follow(func(b Breaker, c Clock) gate {
				m := m
				m.breaker = newBreaker(b, c)
				return m
			})
			if err != nil {
				caught++
			}
		}
		if caught == 0 {
			t.Errorf("%s: no history of %d finds it", name, len(histories))
		}
		t.Logf("%s: found by %d of %d", name, caught, len(histories))
	}
}
