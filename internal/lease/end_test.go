package lease

import (
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// The last look at a fault finds it in force, if it is: that it is about to be ended is no
// reason why it was not.
func TestEndOfWhatWasInForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		f, err := m.Apply(t.Context(), loss(20))
		if err != nil {
			t.Fatal(err)
		}
		beside, err := m.Apply(t.Context(), delay(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		cleared, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "")
		if err != nil || len(cleared) != 1 || cleared[0].Reason != "" {
			t.Errorf("%+v, %v; want no reason", cleared, err)
		}
		e.meddle(m.held[beside.ID].slots[0].place, qdisc.Netem{Loss: 1})
		cleared, err = m.Clear(t.Context(), fault.Selector{ID: beside.ID}, "")
		if err != nil || len(cleared) != 1 || cleared[0].Reason == "" {
			t.Errorf("%+v, %v; want the reason why it was not in force", cleared, err)
		}
	})
}
