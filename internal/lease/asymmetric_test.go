package lease

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

func bothWays(there, back qdisc.Netem) fault.Spec {
	return fault.Spec{Target: "pg", Packet: &there, PacketFrom: &back, Direction: fault.Both, Owner: "uid 0"}
}

// Each direction has its own impairment, and a change is one of both.
func TestEachDirectionHasItsOwn(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	f, err := m.Apply(t.Context(), bothWays(qdisc.Netem{Rate: 1e5, Seed: 7}, qdisc.Netem{Rate: 2e5, Delay: time.Second, Seed: 7}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]qdisc.Netem{to.Key(): {Rate: 1e5, Seed: 7}, from.Key(): {Rate: 2e5, Delay: time.Second, Seed: fault.Seed(7, 1)}}
	if diff := cmp.Diff(want, e.inForce()); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
	if now, err := m.Get(t.Context(), f.ID); err != nil || now.State != fault.Active {
		t.Errorf("%+v, %v", now, err)
	}
	held, err := m.Held(t.Context(), f.ID)
	if err != nil || len(held.Places) != 2 || held.Places[0].Netem != want[to.Key()] || held.Places[1].Netem != want[from.Key()] {
		t.Errorf("what a verification is told: %+v, %v", held, err)
	}
	f, err = m.Change(t.Context(), f.ID, "uid 0", 0, qdisc.Patch{Loss: new(qdisc.Percent(5))})
	if err != nil || f.Spec.PacketFrom.Loss != 5 {
		t.Fatalf("%+v, %v", f, err)
	}
	want[to.Key()] = qdisc.Netem{Rate: 1e5, Loss: 5, Seed: 7}
	want[from.Key()] = qdisc.Netem{Rate: 2e5, Delay: time.Second, Loss: 5, Seed: fault.Seed(7, 1)}
	if diff := cmp.Diff(want, e.inForce()); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
	e.meddle(from, qdisc.Netem{Rate: 1e5})
	if now, _ := m.Get(t.Context(), f.ID); now.State != fault.Drifted {
		t.Errorf("one direction was changed by somebody: %s", now.State)
	}
}

// Faults combine where the directions set different things.
func TestConflictsByDirection(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	if _, err := m.Apply(t.Context(), bothWays(qdisc.Netem{Rate: 1e5}, qdisc.Netem{Delay: time.Second})); err != nil {
		t.Fatal(err)
	}
	back := delay(time.Second)
	back.Direction = fault.From
	if _, err := m.Apply(t.Context(), back); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("a delay from the target: %v", err)
	}
	if _, err := m.Apply(t.Context(), delay(2*time.Second)); err != nil {
		t.Errorf("a delay to the target: %v", err)
	}
	want := map[string]qdisc.Netem{to.Key(): {Rate: 1e5, Delay: 2 * time.Second}, from.Key(): {Delay: time.Second}}
	if diff := cmp.Diff(want, e.inForce()); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
}

// Where both directions pass one place, and the same packets are meant, there is no telling
// them apart.
func TestOnePlaceForBothDirections(t *testing.T) {
	e := newFakeEngine()
	m, _ := newHost(t, e, nil)
	spec := bothWays(qdisc.Netem{Rate: 1e5}, qdisc.Netem{Rate: 2e5})
	spec.Target, spec.Selector = "", &target.Selector{Namespace: "blue", Device: "lo"}
	if _, err := m.Apply(t.Context(), spec); !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "not told apart") {
		t.Error(err)
	}
	if len(e.inForce()) > 0 {
		t.Errorf("in force: %v", e.inForce())
	}
}
