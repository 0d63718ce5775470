package lease

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// within is s as what a command asks for that runs beside a held fault.
func within(id string, s fault.Spec) fault.Spec {
	s.Within = id
	return s
}

// conflicts wants a conflict with these words, and returns its hint.
func conflicts(t *testing.T, err error, words ...string) string {
	t.Helper()
	if !errors.Is(err, fault.ErrConflict) {
		t.Fatalf("%v, want a conflict", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	return fault.HintOf(err)
}

func TestHeldFaultIsItsCommandsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		s := loss(20)
		s.Process = "pid 4711 (netemctl)"
		a := hold(t, m, s)
		alone := map[string]qdisc.Netem{to.Key(): {Loss: 20}}
		time.Sleep(3 * time.Second)

		_, err := m.Hold(t.Context(), delay(80*time.Millisecond), nil)
		hint := conflicts(t, err, "pg is held by uid 0, pid 4711 (netemctl), with fault "+a.ID(), "applied 3s ago, held while its command runs", "'netemctl show "+a.ID()+"'")
		if strings.Contains(err.Error(), "ends in") || !strings.Contains(hint, "--wait") {
			t.Errorf("%v; hint %q", err, hint)
		}
		_, err = m.Apply(t.Context(), delay(80*time.Millisecond))
		conflicts(t, err, "held by uid 0, pid 4711")
		_, err = m.ApplyAll(t.Context(), []fault.Spec{delay(80 * time.Millisecond)})
		if hint := conflicts(t, err, "held by uid 0, pid 4711"); hint != "" {
			t.Errorf("ApplyAll cannot wait, hint %q", hint)
		}
		if diff := cmp.Diff(alone, e.inForce()); diff != "" {
			t.Errorf("in force (-want +got):\n%s", diff)
		}

		// --wait waits for it.
		waiting := delay(80 * time.Millisecond)
		waiting.Wait = time.Minute
		got := make(chan error, 1)
		go func() {
			h, err := m.Hold(context.Background(), waiting, nil)
			if err == nil {
				_, err = h.Release(context.Background())
			}
			got <- err
		}()
		synctest.Wait()
		if m.Waiting() != 1 {
			t.Errorf("%d wait", m.Waiting())
		}
		if _, err := a.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-got; err != nil {
			t.Errorf("waited: %v", err)
		}
		waiting.Wait = 2 * time.Second
		_ = hold(t, m, s)
		_, err = m.Apply(t.Context(), waiting)
		if hint := conflicts(t, err, "waited 2s", "held by uid 0"); hint != "" {
			t.Errorf("after waiting the hint is %q", hint)
		}
	})
}

// A fault that stood before is in the way of a held one, too.
func TestHeldFaultJoinsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		f, err := m.Apply(t.Context(), loss(20))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		_, err = m.Hold(t.Context(), delay(time.Millisecond), nil)
		hint := conflicts(t, err, "combines with no other fault", "fault "+f.ID+" (applied 20s ago, ends in 9m40s) of uid 0")
		if hint != "'--wait 9m40s' waits for its end" {
			t.Errorf("hint %q", hint)
		}
		if _, err := m.Apply(t.Context(), delay(time.Millisecond)); err != nil {
			t.Errorf("beside one that nobody holds: %v", err)
		}
	})
}

func TestFaultsWithinAHeldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m, _ := newHost(t, e, nil)
		outer := hold(t, m, on("80"))
		slow := func(ports string) fault.Spec {
			return within(outer.ID(), with(on(ports), func(s *fault.Spec) { s.Packet = &qdisc.Netem{Delay: time.Millisecond} }))
		}
		inner, err := m.Apply(t.Context(), slow("80"))
		if err != nil {
			t.Fatal(err)
		}
		if len(inner.Warnings) > 0 {
			t.Errorf("warnings %q", inner.Warnings)
		}
		elsewhere, err := m.Apply(t.Context(), slow("90"))
		if err != nil {
			t.Fatal(err)
		}
		nested, err := m.Hold(t.Context(), within(outer.ID(), with(on("80"), func(s *fault.Spec) { s.Packet = &qdisc.Netem{Duplicate: 1} })), nil)
		if err != nil {
			t.Fatal(err)
		}
		deepest, err := m.ApplyAll(t.Context(), []fault.Spec{within(nested.ID(), with(on("80"), func(s *fault.Spec) { s.Packet = &qdisc.Netem{Corrupt: 1} }))})
		if err != nil {
			t.Fatal(err)
		}
		all := ""
		for match := range matches(e) {
			all += match + "; "
		}
		for _, want := range []string{"loss 20%", "delay 1ms", "duplicate 1%", "corrupt 1%"} {
			if !strings.Contains(all, want) {
				t.Errorf("in force: %s, without %s", all, want)
			}
		}
		_, err = m.Apply(t.Context(), slow("80"))
		conflicts(t, err, "delay is set by", "ends with fault "+outer.ID())
		_, err = m.Apply(t.Context(), with(slow("90"), func(s *fault.Spec) { s.Within, s.Packet = "", &qdisc.Netem{Loss: 1} }))
		conflicts(t, err, "ends with fault "+outer.ID(), "'netemctl show "+elsewhere.ID+"'")

		nested.Drop(0)
		if _, err := m.Get(t.Context(), deepest[0].ID); !errors.Is(err, ErrUnknownFault) {
			t.Errorf("outlived the hold that it was made within: %v", err)
		}
		if n := len(m.List(t.Context())); n != 3 {
			t.Errorf("%d faults, want 3", n)
		}
		if _, err := outer.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if left, n := e.inForce(), len(m.List(t.Context())); len(left) > 0 || n > 0 {
			t.Errorf("left: %v, %d listed", left, n)
		}
		late, err := m.Apply(t.Context(), slow("80"))
		if err != nil || len(late.Warnings) != 1 || !strings.Contains(late.Warnings[0], "has ended: it stands by itself") {
			t.Errorf("after the hold: %v, %q", err, late.Warnings)
		}
		unknown, err := m.Apply(t.Context(), within("zzz9", on("90")))
		if err != nil || len(unknown.Warnings) != 1 || !strings.Contains(unknown.Warnings[0], "is not known to this agent") {
			t.Errorf("unknown: %v, %q", err, unknown.Warnings)
		}
	})
}

// Whose command it is not gets nothing by naming the fault.
func TestWithinIsTheOwners(t *testing.T) {
	m := newManager(t, newFakeEngine())
	h := hold(t, m, loss(20))
	_, err := m.Apply(t.Context(), within(h.ID(), by("uid 7", 0, delay(time.Millisecond))))
	conflicts(t, err, "pg is held by uid 0")
}

// What ends the outer one ends those within: its time, a clear, the end of its target.
func TestWithinEndsWithIt(t *testing.T) {
	for name, end := range map[string]func(m *Manager, h *Hold) error{
		"time": func(*Manager, *Hold) error { time.Sleep(40 * time.Second); return nil },
		"clear": func(m *Manager, h *Hold) error {
			_, err := m.Clear(context.Background(), fault.Selector{ID: h.ID()}, "uid 0")
			return err
		},
		"retire": func(m *Manager, _ *Hold) error {
			return m.Retire(context.Background(), []string{"pg"}, func(context.Context) error { return nil })
		},
		"keep": func(m *Manager, _ *Hold) error {
			if kept := m.Keep(context.Background()); len(kept) > 0 {
				return errors.New("kept " + kept[0].ID)
			}
			return m.Close(context.Background())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newFakeEngine()
				m := newManager(t, e)
				s := loss(20)
				s.TTL = 30 * time.Second
				h := hold(t, m, s)
				other := within(h.ID(), delay(time.Millisecond))
				other.Direction = fault.From
				if _, err := m.Apply(t.Context(), other); err != nil {
					t.Fatal(err)
				}
				if err := end(m, h); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				if left, n := e.inForce(), len(m.List(t.Context())); len(left) > 0 || n > 0 {
					t.Errorf("left: %v, %d listed", left, n)
				}
			})
		})
	}
}

// A fault beside another combines with it and outlives it, and a third may stand beside what
// is left; one of the same user who names none does not combine with either.
func TestBesideOutlivesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		beside := func(id string, s fault.Spec) fault.Spec {
			s.Beside = id
			return s
		}
		first := hold(t, m, loss(20))
		second := hold(t, m, beside(first.ID(), delay(80*time.Millisecond)))
		if diff := cmp.Diff(map[string]qdisc.Netem{to.Key(): {Loss: 20, Delay: 80 * time.Millisecond}}, e.inForce()); diff != "" {
			t.Errorf("both (-want +got):\n%s", diff)
		}
		if _, err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff(map[string]qdisc.Netem{to.Key(): {Delay: 80 * time.Millisecond}}, e.inForce()); diff != "" {
			t.Errorf("after the first (-want +got):\n%s", diff)
		}
		_, err := m.Hold(t.Context(), loss(5), nil)
		conflicts(t, err, "pg is held by uid 0", second.ID())
		third := hold(t, m, beside(second.ID(), loss(5)))
		if diff := cmp.Diff(map[string]qdisc.Netem{to.Key(): {Loss: 5, Delay: 80 * time.Millisecond}}, e.inForce()); diff != "" {
			t.Errorf("with a third (-want +got):\n%s", diff)
		}
		for _, h := range []*Hold{second, third} {
			if _, err := h.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if left, n := e.inForce(), len(m.List(t.Context())); len(left) > 0 || n > 0 {
			t.Errorf("left: %v, %d listed", left, n)
		}
	})
}
