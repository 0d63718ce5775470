package lease

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Whoever looks is told why a fault is not in force, also when it has ended.
func TestReasonOfLostAndDrifted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		f, err := m.Apply(t.Context(), loss(20))
		if err != nil || f.Reason != "" {
			t.Fatalf("%+v, %v", f, err)
		}
		see := func(s fault.State, words string) {
			t.Helper()
			f, err := m.Get(t.Context(), f.ID)
			if err != nil || f.State != s || !strings.Contains(f.Reason, words) || words == "" && f.Reason != "" {
				t.Errorf("%s because of %q, %v; want %s, %q", f.State, f.Reason, err, s, words)
			}
		}
		e.meddle(to, qdisc.Netem{Loss: 10})
		see(fault.Drifted, "loss 10% is in force")
		e.meddle(to, qdisc.Netem{Loss: 20})
		see(fault.Active, "")
		e.meddle(to, qdisc.Netem{})
		see(fault.Drifted, "nothing is in force")
		e.mu.Lock()
		e.exists = func(target.Place) bool { return false }
		e.mu.Unlock()
		see(fault.Lost, "the device "+to.Device+" in netns "+to.Namespace+" is gone")
		last := m.events.kept[len(m.events.kept)-1]
		if last.Kind != "lost" || !strings.Contains(last.Fault.Reason, "is gone") {
			t.Errorf("event %s: %q", last.Kind, last.Fault.Reason)
		}
		ended, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid 0")
		if err != nil || len(ended) != 1 || ended[0].State != fault.Cleared || !strings.Contains(ended[0].Reason, "is gone") {
			t.Errorf("cleared: %+v, %v", ended, err)
		}
	})
}

// What passed beside a fault is not forgotten because it was changed.
func TestTotalSurvivesAChange(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	e.count(fault.Counters{Seen: 1000, Opened: 1000})
	h := hold(t, m, loss(20))
	e.count(fault.Counters{Seen: 100, Opened: 50})
	five := qdisc.Percent(5)
	f, err := m.Change(t.Context(), h.ID(), "uid 0", 0, qdisc.Patch{Loss: &five})
	if err != nil || f.Counters != (fault.Counters{}) || f.Total != (fault.Counters{Seen: 100, Opened: 50}) {
		t.Errorf("changed: %+v, total %+v, %v", f.Counters, f.Total, err)
	}
	e.count(fault.Counters{Seen: 10})
	if _, err := m.Change(t.Context(), h.ID(), "uid 0", 0, qdisc.Patch{Loss: &five}); err != nil {
		t.Fatal(err)
	}
	e.count(fault.Counters{Seen: 5, Opened: 1})
	f, err = h.Release(t.Context())
	if want := (fault.Counters{Seen: 115, Opened: 51}); err != nil || f.Total != want || f.Counters != (fault.Counters{Seen: 5, Opened: 1}) {
		t.Errorf("released: %+v, total %+v, want %+v, %v", f.Counters, f.Total, want, err)
	}
}

func TestHowAFaultEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, newFakeEngine())
		cleared, err := m.Apply(t.Context(), loss(20))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{ID: cleared.ID}, "uid 0"); err != nil {
			t.Fatal(err)
		}
		s := delay(time.Millisecond)
		s.TTL = 2 * time.Second
		expired, err := m.Apply(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		for id, want := range map[string]string{cleared.ID: "was cleared 5s ago", expired.ID: "expired 3s ago"} {
			_, get := m.Get(t.Context(), id)
			_, renew := m.Renew(t.Context(), id, "uid 0", 0)
			_, change := m.Change(t.Context(), id, "uid 0", 0, qdisc.Patch{})
			for _, err := range []error{get, renew, change} {
				if !errors.Is(err, ErrUnknownFault) || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "fault "+id+" "+want) {
					t.Errorf("%v, want %q", err, want)
				}
			}
			if _, err := m.Clear(t.Context(), fault.Selector{ID: id}, "uid 0"); err != nil {
				t.Errorf("clear: %v", err)
			}
		}
		time.Sleep(requestMemory)
		if _, err := m.Get(t.Context(), cleared.ID); !errors.Is(err, ErrUnknownFault) || !strings.Contains(err.Error(), "unknown fault") {
			t.Errorf("long after: %v", err)
		}
		for i := range 2 * maxRequests {
			m.mu.Lock()
			m.rememberEnd(m.prefix+string(rune(i)), fault.Cleared)
			m.mu.Unlock()
		}
		if n := len(m.ends); n > maxRequests {
			t.Errorf("%d ends are remembered", n)
		}
	})
}

// A fault that was in force to its end, however it ended, is not told as one that was not.
func TestNoReasonAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, newFakeEngine())
		cleared, err := m.Apply(t.Context(), loss(20))
		if err != nil {
			t.Fatal(err)
		}
		ended, err := m.Clear(t.Context(), fault.Selector{ID: cleared.ID}, "uid 0")
		if err != nil || len(ended) != 1 || ended[0].Reason != "" {
			t.Errorf("cleared: %+v, %v", ended, err)
		}
		if _, err := m.Apply(t.Context(), loss(20)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(fault.DefaultTTL + time.Second)
		last := m.events.kept[len(m.events.kept)-1]
		if last.Kind != "expired" || last.Fault.Reason != "" {
			t.Errorf("event %s because of %q", last.Kind, last.Fault.Reason)
		}
	})
}
