package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/schedule"
	"netemd/internal/target"
	"netemd/qdisc"
)

// recorder writes down what an engine is told, and when.
type recorder struct {
	mu    sync.Mutex
	since time.Time
	lines []string
}

// record watches e from now on.
func record(e *fakeEngine) *recorder {
	r := &recorder{since: time.Now()}
	e.failSets(func(p target.Place, n qdisc.Netem) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.lines = append(r.lines, fmt.Sprintf("%v %s %v", time.Since(r.since), p.Device, n))
		return nil
	})
	return r
}

func (r *recorder) done() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lines
}

// scheduled is a fault that goes by steps of loss, a second each.
func scheduled(shares ...qdisc.Percent) fault.Spec {
	s := &schedule.Schedule{}
	for _, p := range shares {
		s.Steps = append(s.Steps, schedule.Step{For: time.Second, Impairment: schedule.Impairment{Packet: qdisc.Netem{Loss: p}}})
	}
	return fault.Spec{Target: "pg", Schedule: s, Owner: "uid 0"}
}

// kinds are the events of m until now, in words.
func kinds(t *testing.T, m *Manager, n int) (words []string) {
	t.Helper()
	all, err := seen(m, n, 0, m.Life())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		word := e.Kind
		if e.Kind == "step" {
			word = fmt.Sprintf("step %d %v", e.Fault.Step.Number, e.Fault.Spec.Packet)
		}
		words = append(words, word)
	}
	return words
}

// Each step is one change in place, when its time comes; the fault ends with its schedule.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		r := record(e)
		f, err := m.Apply(t.Context(), scheduled(0, 100, 5))
		if err != nil {
			t.Fatal(err)
		}
		if f.Spec.TTL != 3*time.Second || f.Step == nil || f.Step.Number != 1 || f.Step.Of != 3 || !f.Step.Next.Equal(f.Applied.Add(time.Second)) {
			t.Errorf("%+v, step %+v", f, f.Step)
		}
		time.Sleep(1500 * time.Millisecond)
		now, err := m.Get(t.Context(), f.ID)
		if err != nil || now.State != fault.Active || now.Spec.Packet.Loss != 100 || now.Step.Number != 2 || now.Step.Late != 0 ||
			!now.Step.Began.Equal(f.Applied.Add(time.Second)) {
			t.Errorf("in the second: %+v, step %+v, %v", now, now.Step, err)
		}
		time.Sleep(2 * time.Second)
		if diff := cmp.Diff([]string{"0s server none", "1s server loss 100%", "2s server loss 5%"}, r.done()); diff != "" {
			t.Errorf("the engine was told (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"applied", "step 2 loss 100%", "step 3 loss 5%", "expired"}, kinds(t, m, 4)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if len(e.inForce()) > 0 {
			t.Errorf("left: %v", e.inForce())
		}
	})
}

// With more time than its schedule the fault stays, and impairs nothing; a client that holds
// it keeps it likewise.
func TestScheduleIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		r := record(e)
		spec := scheduled(100)
		spec.TTL = 10 * time.Second
		f, err := m.Apply(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		now, err := m.Get(t.Context(), f.ID)
		if err != nil || !now.Step.Over || !now.Step.Next.IsZero() || !now.Spec.Packet.IsZero() || now.State != fault.Active {
			t.Errorf("%+v, step %+v, %v", now, now.Step, err)
		}
		if diff := cmp.Diff([]string{"0s server loss 100%", "1s server none"}, r.done()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		time.Sleep(6 * time.Second)
		h, err := m.Hold(t.Context(), scheduled(100), nil)
		if err != nil {
			t.Fatal(err)
		}
		if ttl := h.Fault().Spec.TTL; ttl != fault.DefaultTTL {
			t.Errorf("held for %v", ttl)
		}
		time.Sleep(5 * time.Second)
		if last, err := h.Release(t.Context()); err != nil || last.State != fault.Cleared || !last.Step.Over {
			t.Errorf("%+v, %v", last, err)
		}
	})
}

// What the agent slept through is not made up for: the present step is made, and the others
// counted.
func TestStepsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		f, err := m.Apply(t.Context(), scheduled(1, 2, 3, 4, 5, 6, 7))
		if err != nil {
			t.Fatal(err)
		}
		var told []qdisc.Percent
		e.failSets(func(_ target.Place, n qdisc.Netem) error {
			if told = append(told, n.Loss); n.Loss == 2 {
				time.Sleep(3500 * time.Millisecond) // step 2, which came at 1 s
			}
			return nil
		})
		time.Sleep(4900 * time.Millisecond)
		now, err := m.Get(t.Context(), f.ID)
		if err != nil || now.Step.Number != 5 || now.Step.Skipped != 2 || now.Step.Late != 500*time.Millisecond || now.Step.MaxLate != 3500*time.Millisecond {
			t.Errorf("step %+v, %v", now.Step, err)
		}
		time.Sleep(time.Second)
		if now, _ := m.Get(t.Context(), f.ID); now.Step.Number != 6 || now.Step.Late != 0 || now.Step.Skipped != 2 {
			t.Errorf("step %+v", now.Step)
		}
		if diff := cmp.Diff([]qdisc.Percent{2, 5, 6}, told); diff != "" {
			t.Errorf("the engine was told (-want +got):\n%s", diff)
		}
	})
}

// A step that fails leaves the fault lost, with the reason, and is tried again; the schedule
// goes on.
func TestStepFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		spec := scheduled(10, 20, 30)
		spec.Schedule.Steps[1].For = 5 * time.Second
		h, err := m.Hold(t.Context(), spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		e.failSets(func(target.Place, qdisc.Netem) error { return errors.New("no buffer space available") })
		time.Sleep(1500 * time.Millisecond)
		f, err := m.Get(t.Context(), h.ID())
		if err != nil || f.State != fault.Lost || !strings.Contains(f.Reason, "step 2 of its schedule could not be made") || !strings.Contains(f.Reason, "no buffer space") {
			t.Errorf("%s, %q, %v", f.State, f.Reason, err)
		}
		for _, n := range e.inForce() {
			if n.Loss != 10 {
				t.Errorf("in force meanwhile: %v", n)
			}
		}
		e.failSets(nil)
		time.Sleep(time.Second)
		if f, _ := m.Get(t.Context(), h.ID()); f.State != fault.Active || f.Reason != "" || f.Step.Number != 2 || f.Step.Late != time.Second {
			t.Errorf("tried again: %+v, step %+v", f, f.Step)
		}
		time.Sleep(4 * time.Second)
		if f, _ := m.Get(t.Context(), h.ID()); f.State != fault.Active || f.Spec.Packet.Loss != 30 {
			t.Errorf("the next step: %+v", f)
		}
		if heard, _ := told(h); !cmp.Equal(heard, []string{"lost", "repaired", "step", "step"}) {
			t.Errorf("the holder was told %v", heard)
		}
		if _, err := h.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A fault that outlives its agent goes on where its timetable is by then, with the same times.
func TestKeepSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, j := newFakeEngine(), newFakeJournal()
		m, _ := newHost(t, e, withJournal(e, j))
		spec := on("80")
		spec.Packet = nil
		spec.RequestID = "again"
		spec.Schedule = &schedule.Schedule{Rounds: schedule.Forever, Jitter: 20, Seed: 5, Steps: []schedule.Step{
			{For: time.Second, Impairment: schedule.Impairment{Packet: qdisc.Netem{Loss: 5}}}, {For: time.Second},
		}}
		f, err := m.Apply(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if again, err := m.Apply(t.Context(), spec); err != nil || again.ID != f.ID {
			t.Errorf("the same request: %+v, %v", again, err)
		}
		kept := m.Keep(t.Context())
		if err := m.Close(t.Context()); err != nil || len(kept) != 1 || len(e.inForce()) > 0 {
			t.Fatalf("%v, %+v", err, kept)
		}
		time.Sleep(30 * time.Second)
		next, _ := newHost(t, e, withJournal(e, j))
		for range 2 {
			back, err := next.Restore(t.Context(), kept[0])
			if errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			now, err := next.Get(t.Context(), f.ID)
			want := spec.Schedule.At(time.Since(f.Applied))
			if err != nil || now.Step.Number != want.Number || *now.Spec.Packet != want.Packet || now.State != fault.Active {
				t.Errorf("%+v, %+v, want %+v, %v", back, now.Step, want, err)
			}
			time.Sleep(2 * time.Second)
		}
		if again, err := next.Apply(t.Context(), spec); err != nil || again.ID != f.ID {
			t.Errorf("the same request in the next life: %+v, %v", again, err)
		}
	})
}

// What any step sets is in the way of others, and the other way round; what none sets combines.
func TestScheduleConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		spec := scheduled(10, 20)
		spec.Schedule.Steps[1].Packet = qdisc.Netem{Delay: time.Second}
		f, err := m.Apply(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(t.Context(), delay(time.Second)); !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), "delay is set by") {
			t.Errorf("a delay, which only the second step has: %v", err)
		}
		rate := fault.Spec{Target: "pg", Packet: &qdisc.Netem{Rate: 1e6}, Owner: "uid 0"}
		if _, err := m.Apply(t.Context(), rate); err != nil {
			t.Errorf("a rate: %v", err)
		}
		time.Sleep(1500 * time.Millisecond)
		for _, n := range e.inForce() {
			if n.Rate != 1e6 || n.Delay != time.Second || n.Loss != 0 {
				t.Errorf("in force together: %v", n)
			}
		}
		if _, err := m.Change(t.Context(), f.ID, "uid 0", 0, qdisc.Patch{Loss: new(qdisc.Percent(1))}); !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "timetable") {
			t.Errorf("change: %v", err)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{All: true}, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(t.Context(), delay(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Apply(t.Context(), spec); !errors.Is(err, fault.ErrConflict) {
			t.Errorf("the other way round: %v", err)
		}
	})
}

// After a clear no step is made, whenever it comes.
func TestClearBetweenSteps(t *testing.T) {
	for _, after := range []time.Duration{0, 999 * time.Millisecond, time.Second, 1001 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			e := newFakeEngine()
			m := newManager(t, e)
			f, err := m.Apply(t.Context(), scheduled(10, 20, 30))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, ""); err != nil {
				t.Fatal(err)
			}
			e.done()
			time.Sleep(5 * time.Second)
			if ops := e.done(); len(ops) > 0 || len(e.inForce()) > 0 {
				t.Errorf("cleared after %v: %v, %v", after, ops, e.inForce())
			}
		})
	}
}

// A schedule that is too long for the agent's limits is refused before anything is done.
func TestScheduleTooLong(t *testing.T) {
	e := newFakeEngine()
	m, _ := newHost(t, e, func(c *Config) { c.Limits.MaxTTL = 2 * time.Second })
	spec := scheduled(1, 2, 3)
	_, err := m.Apply(t.Context(), spec)
	if !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "the schedule takes 3s") {
		t.Error(err)
	}
	spec.TTL = time.Second
	if _, err := m.Apply(t.Context(), spec); err != nil {
		t.Errorf("for a part of it: %v", err)
	}
}

// Several at once, each by its own timetable.
func TestApplyAllSchedules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m, _ := newHost(t, e, nil)
		var specs []fault.Spec
		for i, port := range []string{"80", "81"} {
			spec := on(port)
			spec.Packet, spec.Schedule = nil, scheduled(qdisc.Percent(10+i), qdisc.Percent(20+i)).Schedule
			specs = append(specs, spec)
		}
		faults, err := m.ApplyAll(t.Context(), specs)
		if err != nil || len(faults) != 2 || faults[1].Step == nil {
			t.Fatalf("%+v, %v", faults, err)
		}
		time.Sleep(1500 * time.Millisecond)
		var got []qdisc.Percent
		for _, f := range m.List(t.Context()) {
			got = append(got, f.Spec.Packet.Loss)
		}
		if diff := cmp.Diff([]qdisc.Percent{20, 21}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
