package lease

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// hold makes a fault that is held.
func hold(t *testing.T, m *Manager, s fault.Spec) *Hold {
	t.Helper()
	h, err := m.Hold(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// told returns what a holder was told, without waiting, and whether that is all.
func told(h *Hold) (kinds []string, over bool) {
	for {
		select {
		case e, ok := <-h.Events():
			if !ok {
				return kinds, true
			}
			kinds = append(kinds, e.Kind)
		default:
			return kinds, false
		}
	}
}

func TestHoldAndRelease(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	h := hold(t, m, loss(20))
	if f := h.Fault(); f.Token == 0 || f.Token != h.Token() || f.ID != h.ID() || f.State != fault.Active {
		t.Errorf("held: %+v, token %d", f, h.Token())
	}
	e.count(fault.Counters{Seen: 10, Lost: 2})
	if f, err := h.Renew(t.Context()); err != nil || f.Token != h.Token() {
		t.Errorf("renew: %+v, %v", f, err)
	}
	f, err := h.Release(t.Context())
	if err != nil || f.State != fault.Cleared || f.Counters.Lost != 2 || len(e.inForce()) > 0 {
		t.Errorf("release: %+v, %v; in force %v", f, err, e.inForce())
	}
	if kinds, over := told(h); len(kinds) > 0 || !over || h.Err() != nil {
		t.Errorf("what he did himself was told: %v, over %t, %v", kinds, over, h.Err())
	}
	if again, err := h.Release(t.Context()); err != nil || !cmp.Equal(f, again) || !cmp.Equal(f, h.Fault()) {
		t.Errorf("once more: %+v, %v", again, err)
	}
	if _, err := h.Renew(t.Context()); !errors.Is(err, ErrUnknownFault) {
		t.Errorf("renewed after the end: %v", err)
	}
	h.Drop(0)
	if next := hold(t, m, loss(20)); next.Token() <= h.Token() {
		t.Errorf("token %d after %d", next.Token(), h.Token())
	}
}

func TestHolderIsToldWhatOthersDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		s := loss(20)
		s.TTL = 5 * time.Second
		h := hold(t, m, s)
		five := qdisc.Percent(5)
		if _, err := m.Change(t.Context(), h.ID(), "uid 0", 0, qdisc.Patch{Loss: &five}); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Renew(t.Context(), h.ID(), "uid 0", time.Minute); err != nil {
			t.Fatal(err)
		}
		e.meddle(to, qdisc.Netem{Loss: 10})
		m.List(t.Context())
		e.meddle(to, qdisc.Netem{Loss: 5})
		m.List(t.Context())
		if _, err := m.Clear(t.Context(), fault.Selector{ID: h.ID()}, ""); err != nil {
			t.Fatal(err)
		}
		kinds, over := told(h)
		if diff := cmp.Diff([]string{"changed", "renewed", "drifted", "repaired", "cleared"}, kinds); diff != "" || !over {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		if f, err := h.Release(t.Context()); err != nil || f.State != fault.Cleared {
			t.Errorf("release of what others cleared: %+v, %v", f, err)
		}
		h = hold(t, m, s)
		time.Sleep(s.TTL + time.Second)
		synctest.Wait()
		if kinds, over := told(h); !over || !cmp.Equal(kinds, []string{"expired"}) || h.Fault().State != fault.Expired {
			t.Errorf("after its time: %v, over %t, %+v", kinds, over, h.Fault())
		}
	})
}

// A holder who does not read misses events, but never the last.
func TestHolderThatDoesNotRead(t *testing.T) {
	m := newManager(t, newFakeEngine())
	h := hold(t, m, loss(20))
	for range 3 * holdBuffer {
		if _, err := m.Renew(t.Context(), h.ID(), "uid 0", time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Clear(t.Context(), fault.Selector{All: true}, ""); err != nil {
		t.Fatal(err)
	}
	kinds, over := told(h)
	if len(kinds) != holdBuffer || kinds[len(kinds)-1] != "cleared" || !over {
		t.Errorf("%d events, %v", len(kinds), kinds)
	}
}

func TestDrop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		hold(t, m, loss(20)).Drop(0)
		if len(e.inForce()) > 0 || len(m.List(t.Context())) > 0 {
			t.Error("a fault outlived its holder")
		}
		h := hold(t, m, loss(20))
		h.Drop(10 * time.Second)
		time.Sleep(9999 * time.Millisecond)
		if len(e.inForce()) != 1 {
			t.Error("a fault ended within the grace")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if kinds, over := told(h); len(e.inForce()) > 0 || !over || !cmp.Equal(kinds, []string{"cleared"}) {
			t.Errorf("after the grace: in force %v, told %v", e.inForce(), kinds)
		}
		s := loss(20)
		s.TTL = 2 * time.Second
		hold(t, m, s).Drop(time.Minute)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(e.inForce()) > 0 {
			t.Error("the grace is longer than the time to live")
		}
		h = hold(t, m, loss(20))
		e.failClear(fs.ErrPermission)
		h.Drop(0)
		if list := m.List(t.Context()); len(list) != 1 || !strings.Contains(strings.Join(list[0].Warnings, " "), "clear failed") {
			t.Errorf("listed: %+v, want the fault with a warning", list)
		}
		e.failClear(nil)
		time.Sleep(firstRetry + time.Second)
		synctest.Wait()
		if len(e.inForce()) > 0 || len(m.List(t.Context())) > 0 {
			t.Error("what could not be cleared was not tried again")
		}
	})
}

func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		first := hold(t, m, loss(20))
		first.Drop(10 * time.Second)
		time.Sleep(5 * time.Second)
		second, err := m.Resume(t.Context(), first.ID(), first.Token(), "uid 0")
		if err != nil || second.Token() <= first.Token() || second.Fault().Token != second.Token() {
			t.Fatalf("resume: %+v, %v", second, err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(e.inForce()) != 1 {
			t.Fatal("the grace of the old holder ended a resumed fault")
		}
		if _, over := told(first); !over || !errors.Is(first.Err(), fault.ErrConflict) {
			t.Errorf("the old holder was not told: %v", first.Err())
		}
		newer := "is held by another client of uid 0 since 1m0s, with token 2; token 1 is not valid any more"
		for what, err := range map[string]error{
			"renew":   second0(first.Renew(t.Context())),
			"release": second0(first.Release(t.Context())),
			"change":  second0(m.Change(t.Context(), first.ID(), "uid 0", first.Token(), qdisc.Patch{})),
			"resume":  second0(m.Resume(t.Context(), first.ID(), first.Token(), "uid 0")),
		} {
			if !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), newer) || !strings.HasPrefix(err.Error(), what+": ") {
				t.Errorf("%s with an old token: %v", what, err)
			}
		}
		first.Drop(0)
		if len(e.inForce()) != 1 {
			t.Error("the old holder's end ended the fault")
		}
		if _, err := m.Resume(t.Context(), first.ID(), second.Token(), "uid 7"); !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), "belongs to uid 0") {
			t.Errorf("resumed by another owner: %v", err)
		}
		if _, err := m.Resume(t.Context(), first.ID(), 0, "uid 0"); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("without a token: %v", err)
		}
		third, err := m.Resume(t.Context(), first.ID(), second.Token(), "") // root
		if err != nil {
			t.Fatal(err)
		}
		zero := qdisc.Percent(3)
		if _, err := m.Change(t.Context(), first.ID(), "uid 0", third.Token(), qdisc.Patch{Loss: &zero}); err != nil {
			t.Errorf("change with the token: %v", err)
		}
		if _, err := third.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := m.Resume(t.Context(), first.ID(), third.Token(), "uid 0"); !errors.Is(err, ErrUnknownFault) {
			t.Errorf("resume of what has ended: %v", err)
		}
		free, err := m.Apply(t.Context(), loss(20))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Resume(t.Context(), free.ID, 2, "uid 0"); !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), "held by no client") {
			t.Errorf("resume of what nobody held: %v", err)
		}
	})
}

// second0 is the error of a pair.
func second0[T any](_ T, err error) error { return err }

// A client that lost the answer asks again with the same request id, and is the holder then.
func TestHoldAskedTwice(t *testing.T) {
	m := newManager(t, newFakeEngine())
	s := loss(20)
	s.RequestID = "r1"
	first, again := hold(t, m, s), hold(t, m, s)
	if again.ID() != first.ID() || again.Token() <= first.Token() {
		t.Errorf("%s %d, then %s %d", first.ID(), first.Token(), again.ID(), again.Token())
	}
	if _, over := told(first); !over || !errors.Is(first.Err(), fault.ErrConflict) {
		t.Errorf("the first one goes on: %v", first.Err())
	}
	if _, err := again.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := m.Hold(t.Context(), s, nil); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("after its end: %v", err)
	}
}

func TestCloseEndsHolds(t *testing.T) {
	m := newManager(t, newFakeEngine())
	h := hold(t, m, loss(20))
	if err := m.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if kinds, over := told(h); !over || !cmp.Equal(kinds, []string{"cleared"}) {
		t.Errorf("told %v, over %t", kinds, over)
	}
}
