package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// fakeJournal is a journal in memory.
type fakeJournal struct {
	mu   sync.Mutex
	open map[string][]target.Place
	// told is what was recorded, in order: "intend ID".
	told []string
	// fail makes a step fail: "intend", "hold" or "end".
	fail map[string]error
}

func newFakeJournal() *fakeJournal {
	return &fakeJournal{open: map[string][]target.Place{}, fail: map[string]error{}}
}

// stepID is a step with the fault that it is of; ids differ from life to life by letters.
func stepID(step, id string) string { return step + " " + strings.TrimLeft(id, "bcdfghjkmnpqrstvwxz") }

func (j *fakeJournal) Intend(_ context.Context, f fault.Fault, places []target.Place) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.fail["intend"]; err != nil {
		return err
	}
	j.open[f.ID] = slices.Clone(places)
	j.told = append(j.told, stepID("intend", f.ID))
	return nil
}

func (j *fakeJournal) Hold(_ context.Context, f fault.Fault) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.fail["hold"]; err != nil {
		return err
	}
	if _, ok := j.open[f.ID]; !ok {
		return fmt.Errorf("a hold of %s, which was not intended", f.ID)
	}
	j.told = append(j.told, stepID("hold", f.ID))
	return nil
}

func (j *fakeJournal) End(_ context.Context, id string, s fault.State) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.fail["end"]; err != nil {
		return err
	}
	delete(j.open, id)
	j.told = append(j.told, stepID("end", id)+" "+string(s))
	return nil
}

// failing makes a step fail with err, or work again.
func (j *fakeJournal) failing(step string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.fail[step] = err
}

// covers reports whether somebody who comes after a kill would look at p.
func (j *fakeJournal) covers(p target.Place) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for places := range maps.Values(j.open) {
		if slices.ContainsFunc(places, func(o target.Place) bool { return o.Key() == p.Key() }) {
			return true
		}
	}
	return false
}

// records returns what was recorded since it was asked last.
func (j *fakeJournal) records() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	told := j.told
	j.told = nil
	return told
}

// withJournal has the manager write to j, and the engine refuse what j does not know.
func withJournal(e *fakeEngine, j *fakeJournal) func(*Config) {
	e.covered = j.covers
	return func(c *Config) { c.Journal = j }
}

func TestJournalIsToldEachStep(t *testing.T) {
	e, j := newFakeEngine(), newFakeJournal()
	m, _ := newHost(t, e, withJournal(e, j))
	f, err := m.Apply(t.Context(), on("80"))
	if err != nil {
		t.Fatal(err)
	}
	five := qdisc.Percent(5)
	if _, err := m.Change(t.Context(), f.ID, "uid 0", 0, qdisc.Patch{Loss: &five}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Renew(t.Context(), f.ID, "uid 0", 0); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, ""); err != nil {
		t.Fatal(err)
	}
	want := []string{"intend 1", "hold 1", "intend 1", "hold 1", "hold 1", "end 1 cleared"}
	if diff := cmp.Diff(want, j.records()); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	e.failSets(func(target.Place, qdisc.Netem) error { return errBroken })
	if _, err := m.Apply(t.Context(), on("80")); !errors.Is(err, errBroken) {
		t.Fatal(err)
	}
	e.failSets(nil)
	if diff := cmp.Diff([]string{"intend 2", "end 2 cleared"}, j.records()); diff != "" {
		t.Errorf("of an apply that failed (-want +got):\n%s", diff)
	}
}

// What cannot be written down is not done.
func TestJournalThatFailsRefuses(t *testing.T) {
	full := errors.New("no space left on device")
	for _, step := range []string{"intend", "hold"} {
		t.Run(step, func(t *testing.T) {
			e, j := newFakeEngine(), newFakeJournal()
			m, _ := newHost(t, e, withJournal(e, j))
			first, err := m.Apply(t.Context(), on("80"))
			if err != nil {
				t.Fatal(err)
			}
			before := e.inForce()
			j.failing(step, full)
			if _, err := m.Apply(t.Context(), on("81")); !errors.Is(err, full) || !strings.HasPrefix(err.Error(), "apply: ") {
				t.Errorf("apply: %v", err)
			}
			five := qdisc.Percent(5)
			if _, err := m.Change(t.Context(), first.ID, "uid 0", 0, qdisc.Patch{Loss: &five}); !errors.Is(err, full) {
				t.Errorf("change: %v", err)
			}
			if diff := cmp.Diff(before, e.inForce()); diff != "" {
				t.Errorf("in force (-want +got):\n%s", diff)
			}
			j.failing(step, nil)
			if got := m.List(t.Context()); len(got) != 1 || got[0].State != fault.Active || got[0].Spec.Packet.Loss != 20 || len(j.open) != 1 {
				t.Errorf("listed %+v, journal %v", got, j.open)
			}
			j.failing("end", full) // what is cleared is cleared
			if got, err := m.Clear(t.Context(), fault.Selector{All: true}, ""); err != nil || len(got) != 1 {
				t.Errorf("clear: %v, %v", got, err)
			}
			j.failing("end", nil)
		})
	}
}

// While a fault moves, both its places are in the journal; then only the new one.
func TestMovesAreJournalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, j := newFakeEngine(), newFakeJournal()
		m, h := newHost(t, e, func(c *Config) {
			withJournal(e, j)(c)
			c.LookupEvery = 10e9
			c.Log = slog.New(slog.DiscardHandler)
		})
		h.set("db", "10.0.0.1")
		f, err := m.Apply(t.Context(), toDB(qdisc.Netem{Loss: 20}))
		if err != nil {
			t.Fatal(err)
		}
		h.set("db", "10.0.0.2")
		var during int
		e.failSets(func(target.Place, qdisc.Netem) error {
			j.mu.Lock()
			defer j.mu.Unlock()
			during = len(j.open[f.ID])
			return nil
		})
		nextLookup()
		e.failSets(nil)
		if during != 2 || len(j.open[f.ID]) != 1 || !strings.Contains(j.open[f.ID][0].Match.String(), "10.0.0.2") {
			t.Errorf("%d places while it moved, afterwards %v", during, j.open[f.ID])
		}
		j.failing("intend", errBroken)
		h.set("db", "10.0.0.3")
		e.done()
		nextLookup()
		if ops := e.done(); len(ops) > 0 {
			t.Errorf("moved without a record: %v", ops)
		}
		j.failing("intend", nil)
	})
}
