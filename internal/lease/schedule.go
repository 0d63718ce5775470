package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/schedule"
	"netemd/qdisc"
)

// stepTime bounds how long one step may take; stepRetry is when one that failed is tried
// again, unless the next comes before.
const (
	stepTime  = 10 * time.Second
	stepRetry = time.Second
)

// clock goes through the schedule of a fault. It is guarded as what held has.
type clock struct {
	cursor *schedule.Cursor
	timer  *time.Timer
	// of is how many changes there are; 0 for no end.
	of uint64
	// failed is why what the schedule says now is not in force; empty when it is.
	failed string
}

// wind gives h, which is not held yet, a clock that stands where its schedule is after a time,
// and what that has in force. The time is the one since Applied, so that a fault which outlives
// its agent goes on where the timetable is by then.
func (h *held) wind(since time.Duration) {
	s := h.fault.Spec.Schedule
	if s == nil {
		return
	}
	h.clock = &clock{cursor: s.Begin()}
	h.clock.of, _ = s.Count()
	// No fault is older than the longest time to live, whatever a clock says.
	h.clock.cursor.To(min(max(0, since), fault.MaxTTL))
	h.fault.Spec.Follow(h.clock.cursor.Moment())
}

// scheduledTTL is the time to live of a fault that asked for none, and that no client holds:
// it ends with its schedule.
func (m *Manager) scheduledTTL(s fault.Spec) (time.Duration, error) {
	if s.Outage != nil {
		return m.outageTTL(s.Outage)
	}
	if s.Schedule == nil {
		return m.cfg.Limits.TTL, nil
	}
	length, ends := s.Schedule.Length()
	if !ends {
		return m.cfg.Limits.TTL, nil
	}
	if length > m.cfg.Limits.MaxTTL {
		return 0, &qdisc.FieldError{Field: "ttl", Want: fmt.Sprintf("one of at most %s: the schedule takes %s, and a fault may not last that long here",
			qdisc.FormatDuration(m.cfg.Limits.MaxTTL), qdisc.FormatDuration(length))}
	}
	return max(fault.MinTTL, length), nil
}

// startClock begins to run h's schedule. The caller holds the lock.
func (m *Manager) startClock(h *held) {
	if h.clock == nil {
		return
	}
	h.fault.Step = h.step(time.Now(), 0)
	m.setClock(h)
}

// setClock has the next step made when its time comes, and one that failed before. The caller
// holds the lock.
func (m *Manager) setClock(h *held) {
	c, id := h.clock, h.fault.ID
	h.stopClock()
	wait := time.Duration(-1)
	if !h.fault.Step.Next.IsZero() {
		wait = max(0, time.Until(h.fault.Applied.Add(c.cursor.Moment().End)))
	}
	if c.failed != "" && (wait < 0 || wait > stepRetry) {
		wait = stepRetry
	}
	if wait >= 0 {
		c.timer = time.AfterFunc(wait, func() { m.tick(h, id) })
	}
}

// stopClock has no step made any more. The caller holds the lock.
func (h *held) stopClock() {
	if h.clock != nil && h.clock.timer != nil {
		h.clock.timer.Stop()
	}
}

// step says where h's schedule is: what came into force at a time, after so many that were
// skipped.
func (h *held) step(at time.Time, skipped uint64) *fault.Step {
	moment := h.clock.cursor.Moment()
	s := &fault.Step{
		Number: moment.Number, Of: h.clock.of, Step: moment.Step, Round: moment.Round, Over: moment.Over,
		Began: h.fault.Applied.Add(moment.Begin), Skipped: skipped,
	}
	if !moment.Last() {
		s.Next = h.fault.Applied.Add(moment.End)
	}
	s.Late = max(0, at.Sub(s.Began))
	s.MaxLate = s.Late
	if before := h.fault.Step; before != nil {
		s.MaxLate, s.Skipped = max(s.Late, before.MaxLate), before.Skipped+skipped
	}
	return s
}

// tick makes the step whose time has come: the present one, however many there were since the
// last, so that none are made up for after the agent stood still.
func (m *Manager) tick(h *held, id string) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), stepTime, errors.New("a step of the schedule took too long"))
	defer cancel()
	_, leave, err := m.enterFault(ctx, id)
	if errors.Is(err, ErrUnknownFault) {
		return // it has ended
	}
	if err == nil {
		defer leave()
	}
	skipped, due := m.advance(h, id, err)
	if !due {
		return
	}
	failpoint.At("lease.step.begin")
	// The places stay, and with them what the journal has to say of the fault: nothing new is
	// recorded for a step.
	err = m.enforce(ctx, h, "lease.step.place")
	failpoint.At("lease.step.enforced")
	if err == nil {
		m.rebaseChanged(ctx, h)
	} else {
		m.cfg.Log.Warn("a step of a schedule could not be made", "fault", id, "err", err)
	}
	m.stepped(h, skipped, err)
}

// advance takes h to what its schedule says now, and reports whether that is to be put into
// force. busy is why the lane was not to be had, nil where it was.
func (m *Manager) advance(h *held, id string, busy error) (skipped uint64, due bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	c := h.clock
	if m.held[id] != h || h.ending || h.kept || m.closed || !now.Before(h.fault.Expires) {
		return 0, false
	}
	if busy != nil {
		c.failed = "its schedule stands still: " + busy.Error()
		m.setClock(h)
		return 0, false
	}
	skipped = c.cursor.To(now.Sub(h.fault.Applied))
	moment := c.cursor.Moment()
	if moment.Number == h.fault.Step.Number && c.failed == "" { // the timer was early
		m.setClock(h)
		return 0, false
	}
	h.fault.Spec.Follow(moment)
	if h.nowhere() || h.gone { // nothing can be put into force until it is put back
		h.fault.Step = h.step(now, skipped)
		m.setClock(h)
		return 0, false
	}
	return skipped, true
}

// stepped tells what came of a step. One that failed leaves the fault lost, with the reason,
// until one that succeeds: what is in force meanwhile is what was before.
func (m *Manager) stepped(h *held, skipped uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, before := h.clock, h.fault.State
	again := c.failed != ""
	h.fault.Step = h.step(time.Now(), skipped)
	if err != nil {
		c.failed = fmt.Sprintf("step %d of its schedule could not be made: %s", h.fault.Step.Number, err)
		h.fault.State, h.fault.Reason = fault.Lost, c.failed
		if before != fault.Lost {
			m.publish("lost", h, nil)
		}
		m.setClock(h)
		return
	}
	c.failed = ""
	if again && before == fault.Lost {
		h.fault.State, h.fault.Reason = fault.Active, ""
		m.publish("repaired", h, nil)
	}
	m.publish("step", h, nil)
	m.setClock(h)
}

// refuseScheduled says that a schedule does not change in place.
func refuseScheduled(f fault.Fault) error {
	return &qdisc.FieldError{
		Field: "change", Value: f.ID,
		Want: "a fault without a schedule: this one changes by its own timetable; clear it and apply another",
	}
}
