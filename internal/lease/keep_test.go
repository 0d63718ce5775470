package lease

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// What one agent hands over is put back by the next under the same id, for the time that
// was left.
func TestKeepAndRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, j := newFakeEngine(), newFakeJournal()
		m, _ := newHost(t, e, withJournal(e, j))
		long, err := m.Apply(t.Context(), with(on("80"), func(s *fault.Spec) { s.TTL = time.Minute }))
		if err != nil {
			t.Fatal(err)
		}
		short, err := m.Apply(t.Context(), with(on("81"), func(s *fault.Spec) { s.TTL = 12 * time.Second }))
		if err != nil {
			t.Fatal(err)
		}
		h, err := m.Hold(t.Context(), on("82"), nil)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		kept := m.Keep(t.Context())
		if len(kept) != 2 || kept[0].ID != long.ID || kept[1].ID != short.ID || !kept[0].Expires.Equal(long.Expires) {
			t.Fatalf("kept: %+v", kept)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{ID: long.ID}, ""); err == nil || !strings.Contains(err.Error(), "handed its faults over") {
			t.Errorf("clear of what was handed over: %v", err)
		}
		if _, err := m.Renew(t.Context(), long.ID, "uid 0", 0); err == nil || !strings.Contains(err.Error(), "shutting down") {
			t.Errorf("renew: %v", err)
		}
		if _, err := m.Apply(t.Context(), on("83")); err == nil {
			t.Error("a fault was taken after the handing over")
		}
		if err := m.Close(t.Context()); err != nil || len(e.inForce()) > 0 {
			t.Errorf("close: %v, in force %v", err, e.inForce())
		}
		if kinds, over := told(h); !over || !cmp.Equal(kinds, []string{"cleared"}) {
			t.Errorf("the holder was told %v", kinds)
		}
		time.Sleep(5 * time.Second)

		next, _ := newHost(t, e, withJournal(e, j))
		back, err := next.Restore(t.Context(), kept[0])
		if err != nil || back.ID != long.ID || !back.Expires.Equal(long.Expires) || !back.Applied.Equal(long.Applied) || back.Spec.Owner != "uid 0" {
			t.Errorf("restored: %+v, %v", back, err)
		}
		if len(e.inForce()) != 1 {
			t.Errorf("in force: %v", e.inForce())
		}
		if gone, err := next.Restore(t.Context(), kept[1]); err != nil || gone.State != fault.Expired {
			t.Errorf("one whose time is over: %+v, %v", gone, err)
		}
		if _, err := next.Restore(t.Context(), kept[0]); !errors.Is(err, fs.ErrExist) {
			t.Errorf("a second time: %v", err)
		}
		if f, err := next.Get(t.Context(), long.ID); err != nil || f.ID != long.ID {
			t.Errorf("show: %+v, %v", f, err)
		}
		all, err := seen(next, 2, 0, next.Life())
		if err != nil {
			t.Fatal(err)
		}
		var events []string
		for _, e := range all {
			events = append(events, e.Kind+" "+e.Fault.ID)
		}
		if diff := cmp.Diff([]string{"applied " + long.ID, "expired " + short.ID}, events); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		time.Sleep(time.Until(long.Expires) + time.Millisecond)
		synctest.Wait()
		if len(e.inForce()) > 0 {
			t.Error("a restored fault outlived its time")
		}
		for _, id := range []string{long.ID, short.ID} {
			if got, err := next.Clear(t.Context(), fault.Selector{ID: id}, "uid 0"); err != nil || len(got) > 0 {
				t.Errorf("clear of %s, which has ended: %v, %v", id, got, err)
			}
		}
		if len(j.open) > 0 {
			t.Errorf("the journal has %v", j.open)
		}
	})
}

func TestRestoreThatFails(t *testing.T) {
	e := newFakeEngine()
	m, _ := newHost(t, e, nil)
	f := fault.Fault{ID: "zzz1", Spec: on("80"), Expires: time.Now().Add(time.Minute)}
	e.failSets(func(target.Place, qdisc.Netem) error { return errBroken })
	if _, err := m.Restore(t.Context(), f); !errors.Is(err, errBroken) || !strings.Contains(err.Error(), "restore zzz1: ") {
		t.Errorf("%v, want %v", err, errBroken)
	}
	e.failSets(nil)
	if len(e.inForce()) > 0 {
		t.Errorf("left: %v", e.inForce())
	}
	if all := m.List(t.Context()); len(all) != 1 || all[0].State != fault.Lost || !strings.Contains(all[0].Reason, "put back after a restart: broken") {
		t.Errorf("listed: %+v", all)
	}
	if _, err := m.Held(t.Context(), f.ID); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("verified: %v", err)
	}
	if _, err := m.Change(t.Context(), f.ID, "uid 0", 0, qdisc.Patch{Loss: new(qdisc.Percent(3))}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("changed: %v", err)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid 0"); err != nil {
		t.Errorf("clear: %v", err)
	}
	if _, err := m.Restore(t.Context(), f); err != nil {
		t.Errorf("once more: %v", err)
	}
	f.ID = ""
	if _, err := m.Restore(t.Context(), f); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("without an id: %v", err)
	}
	f.ID, f.Spec.Packet = "zzz2", nil
	if _, err := m.Restore(t.Context(), f); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("without an impairment: %v", err)
	}
}

// What is still being applied when the faults are handed over is not among them, and its
// caller is told so: nobody would end it in the next life.
func TestKeepWhileOneIsApplied(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, *Manager) error{
		"a hold": func(t *testing.T, m *Manager) error {
			t.Helper()
			_, err := m.Hold(t.Context(), on("80"), nil)
			return err
		},
		"a fault": func(t *testing.T, m *Manager) error {
			t.Helper()
			_, err := m.Apply(t.Context(), on("80"))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, j := newFakeEngine(), newFakeJournal()
				m, _ := newHost(t, e, withJournal(e, j))
				e.failSets(func(target.Place, qdisc.Netem) error {
					e.mu.Unlock()
					time.Sleep(10 * lookTime)
					e.mu.Lock()
					return nil
				})
				answer := make(chan error, 1)
				go func() { answer <- begin(t, m) }()
				synctest.Wait()
				if kept := m.Keep(t.Context()); len(kept) != 0 {
					t.Errorf("kept before it was applied: %+v", kept)
				}
				if err := <-answer; err == nil || !strings.Contains(err.Error(), "shutting down") {
					t.Errorf("its caller was told %v, and nobody keeps it", err)
				}
				if len(e.inForce()) > 0 || len(j.open) > 0 {
					t.Errorf("left: %v, journal %v", e.inForce(), j.open)
				}
			})
		})
	}
}

// A fault that was handed over gets no holder any more, who would think that it ends with
// him.
func TestNoHolderAfterKeep(t *testing.T) {
	m, _ := newHost(t, newFakeEngine(), nil)
	s := with(on("80"), func(s *fault.Spec) { s.RequestID = "r1" })
	f, err := m.Apply(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	h := hold(t, m, on("81"))
	if kept := m.Keep(t.Context()); len(kept) != 1 || kept[0].ID != f.ID {
		t.Fatalf("kept: %+v", kept)
	}
	if _, err := m.Hold(t.Context(), s, nil); err == nil || err.Error() != "apply: the agent is shutting down" {
		t.Errorf("a repeated hold of what was kept: %v", err)
	}
	if _, err := m.Resume(t.Context(), h.ID(), h.Token(), "uid 0"); err == nil || err.Error() != "resume: the agent is shutting down" {
		t.Errorf("a resume: %v", err)
	}
}

// A fault that could not be put back at the start is put back when that can be done, where it
// is to be repaired, and ends with its time.
func TestRestoreIsRepaired(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, host *movingHost) {
		host.move(e, 0)
		f := fault.Fault{ID: "zzz1", Spec: mendingSpec(on("80")), Applied: time.Now(), Expires: time.Now().Add(time.Minute)}
		other := fault.Fault{ID: "zzz2", Spec: on("81"), Applied: time.Now(), Expires: time.Now().Add(20 * time.Second)}
		for _, kept := range []fault.Fault{f, other} {
			if _, err := m.Restore(t.Context(), kept); err == nil {
				t.Fatalf("restored without its device")
			}
		}
		after(3 * time.Second)
		for _, got := range m.List(t.Context()) {
			if got.State != fault.Lost || got.Reason == "" {
				t.Errorf("%s is %s: %q", got.ID, got.State, got.Reason)
			}
		}
		host.move(e, 20)
		after(3 * time.Second)
		if got, err := m.Get(t.Context(), f.ID); err != nil || got.State != fault.Active || got.Reason != "" || got.Engine != fault.EBPF || len(e.inForce()) == 0 {
			t.Errorf("%+v, %v; in force %v", got, err, e.inForce())
		}
		after(20 * time.Second)
		if _, err := m.Get(t.Context(), other.ID); !errors.Is(err, ErrUnknownFault) {
			t.Errorf("outlived its time: %v", err)
		}
	})
}
