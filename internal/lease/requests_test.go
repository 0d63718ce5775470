package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

func TestRepeatedRequestMakesOneFault(t *testing.T) {
	m := newManager(t, newFakeEngine())
	s := loss(20)
	s.RequestID = "r1"
	a, err := m.Apply(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Apply(t.Context(), s)
	if err != nil || a.ID != b.ID {
		t.Fatalf("replay gave %s, %v, want %s", b.ID, err, a.ID)
	}
	s.Packet = &qdisc.Netem{Loss: 30}
	if _, err := m.Apply(t.Context(), s); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("another request of the same id: %v, want invalid", err)
	}
}

// Where an engine panics the fault stands, and its request id is taken: whoever repeats the
// request makes no second one, and is told how to end the first.
func TestRequestOfAPanic(t *testing.T) {
	for _, waits := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) { testRequestOfAPanic(t, waits) })
	}
}

func testRequestOfAPanic(t *testing.T, waits bool) {
	t.Helper()
	e := newFakeEngine()
	m, _ := newHost(t, e, nil)
	s := with(on("80"), func(s *fault.Spec) { s.RequestID, s.Wait = "r1", time.Minute })
	if waits {
		if _, err := m.Apply(t.Context(), by("uid 7", 0, on("80"))); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _, _ = m.Clear(t.Context(), fault.Selector{All: true}, "") })
	}
	e.failSets(func(target.Place, qdisc.Netem) error { panic("broken") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = m.Apply(t.Context(), s)
	}()
	e.failSets(nil)
	all := m.List(t.Context())
	if len(all) != 1 {
		t.Fatalf("held: %+v", all)
	}
	id := all[0].ID
	again := fmt.Sprintf("request id \"r1\" made fault %s, and the agent failed before it was whole; 'netemctl clear %s' ends it", id, id)
	if f, err := m.Apply(t.Context(), s); err == nil || !strings.Contains(err.Error(), again) {
		t.Errorf("once more: %+v, %v", f, err)
	}
	if h, err := m.Hold(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), again) {
		t.Errorf("held once more: %+v, %v", h, err)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{ID: id}, "uid 0"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Apply(t.Context(), s); err == nil || !strings.Contains(err.Error(), "which has ended") {
		t.Errorf("after its end: %v", err)
	}
}

// A request id is held from the beginning of a call: its twin gets the answer of the
// first, whatever becomes of that, and another request is refused without waiting.
func TestRequestsAtTheSameTime(t *testing.T) {
	broken := errors.New("broken")
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := newFakeEngine()
			m := newManager(t, e)
			busy, sets := make(chan struct{}), 0
			e.failSets(func(target.Place, qdisc.Netem) error {
				if sets++; sets == 1 {
					e.mu.Unlock()
					<-busy
					e.mu.Lock()
					if fails {
						return broken
					}
				}
				return nil
			})
			s := loss(20)
			s.RequestID = "r1"
			type answer struct {
				fault fault.Fault
				err   error
			}
			answers := make(chan answer, 2)
			apply := func() {
				f, err := m.Apply(t.Context(), s)
				answers <- answer{f, err}
			}
			go apply()
			synctest.Wait()
			go apply()
			synctest.Wait()
			other := s
			other.Target = "bare"
			var field *qdisc.FieldError
			if _, err := m.Apply(t.Context(), other); !errors.As(err, &field) || field.Field != "request_id" {
				t.Errorf("another target under the same id: %v, want an error of request_id", err)
			}
			late, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := m.Apply(late, s); !errors.Is(err, context.Canceled) {
				t.Errorf("a twin that gives up: %v", err)
			}
			close(busy)
			a, b := <-answers, <-answers
			if !fails && (a.err != nil || b.err != nil || a.fault.ID != b.fault.ID) {
				t.Errorf("twins: %s, %v and %s, %v", a.fault.ID, a.err, b.fault.ID, b.err)
			}
			if a.err == nil { // who answers first is open
				a, b = b, a
			}
			if fails && (!errors.Is(a.err, broken) || b.err != nil) {
				t.Errorf("after the first failed: %v, %v, want the second to try itself", a.err, b.err)
			}
			if all := m.List(t.Context()); len(all) != 1 {
				t.Errorf("%d faults, want 1", len(all))
			}
		})
	}
}

// What is remembered of requests is bounded: those that ended first are forgotten first.
func TestRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, newFakeEngine())
		s := loss(20)
		s.RequestID = "stays"
		stays, err := m.Apply(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		s.Target = "bare"
		for i := range maxRequests + 100 {
			s.RequestID = fmt.Sprint(i)
			m.mu.Lock()
			m.requests[requestKey(s)] = &request{finger: fingerprint(s), fault: "gone", ended: time.Now()}
			m.forgetRequests()
			m.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
		if n := len(m.requests); n > maxRequests || n < maxRequests/2 {
			t.Errorf("%d are remembered, at most %d are allowed", n, maxRequests)
		}
		first := s
		first.RequestID = "0"
		if m.requests[requestKey(first)] != nil || m.requests[requestKey(s)] == nil {
			t.Error("the first is remembered, or the last is not")
		}
		s = loss(20)
		s.RequestID = "stays"
		if f, err := m.Apply(t.Context(), s); err != nil || f.ID != stays.ID {
			t.Errorf("one that is held: %s, %v, want %s", f.ID, err, stays.ID)
		}
		time.Sleep(requestMemory + time.Second)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.forgetRequests()
		if n := len(m.requests); n != 0 && n != 1 {
			t.Errorf("%d are remembered an hour later", n)
		}
	})
}

// What one owner calls his request says nothing about another's.
func TestRequestsOfTwoOwners(t *testing.T) {
	m, _ := newHost(t, newFakeEngine(), nil)
	s := with(on("80"), func(s *fault.Spec) { s.RequestID = "r1" })
	first, err := m.Apply(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	other := by("uid 7", 0, with(on("81"), func(s *fault.Spec) { s.RequestID = "r1" }))
	second, err := m.Apply(t.Context(), other)
	if err != nil || first.ID == second.ID {
		t.Fatalf("another owner's: %s, %v", second.ID, err)
	}
	if again, err := m.Apply(t.Context(), other); err != nil || again.ID != second.ID {
		t.Errorf("once more: %s, %v, want %s", again.ID, err, second.ID)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{ID: second.ID}, ""); err != nil {
		t.Fatal(err)
	}
	if again, err := m.Apply(t.Context(), s); err != nil || again.ID != first.ID {
		t.Errorf("the first after the other has ended: %s, %v, want %s", again.ID, err, first.ID)
	}
}

// A request that is repeated after a restart finds its fault, also one that waited then and
// does not now.
func TestRequestOfAnotherLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newHost(t, newFakeEngine(), nil)
		s := by("uid 0", time.Minute, with(on("80"), func(s *fault.Spec) { s.RequestID, s.TTL = "r1", time.Minute }))
		f, err := m.Apply(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		kept := m.Keep(t.Context())
		over := kept[0]
		over.ID, over.Spec.RequestID, over.Expires = "zzz1", "r2", time.Now()
		next, _ := newHost(t, newFakeEngine(), nil)
		for _, k := range append(kept, over) {
			if _, err := next.Restore(t.Context(), k); err != nil {
				t.Fatal(err)
			}
		}
		for _, wait := range []time.Duration{s.Wait, 0} {
			s.Wait = wait
			if again, err := next.Apply(t.Context(), s); err != nil || again.ID != f.ID {
				t.Errorf("repeated with a wait of %v: %s, %v, want %s", wait, again.ID, err, f.ID)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for id, made := range map[string]string{"r1": f.ID, "r2": "zzz1"} {
			s.RequestID = id
			if _, err := next.Apply(t.Context(), s); err == nil || !strings.Contains(err.Error(), "made fault "+made+", which has ended") {
				t.Errorf("%s after its end: %v", id, err)
			}
		}
	})
}
