package lease

import (
	"errors"
	"strings"
	"testing"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// Owners are who their keys say, not what they are called: two may have one name after a
// user was deleted, and one another name after he was renamed.
func TestOwnersAreToldApartByKey(t *testing.T) {
	by := func(key, name string, s fault.Spec) fault.Spec {
		s.OwnerKey, s.Owner = key, name
		return s
	}
	m, _ := newHost(t, newFakeEngine(), func(c *Config) { c.Limits.PerOwner = 2 })
	loss := qdisc.Percent(5)
	s := on("80")
	s.RequestID = "r1"
	f, err := m.Apply(t.Context(), by("uid:7", "bob", s))
	if err != nil {
		t.Fatal(err)
	}
	another := on("80")
	another.Packet = &qdisc.Netem{Delay: 1e6}
	if _, err := m.Apply(t.Context(), by("uid:8", "bob", another)); !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), "held by bob") {
		t.Errorf("beside another's of the same name: %v", err)
	}
	if _, err := m.Change(t.Context(), f.ID, "uid:8", 0, qdisc.Patch{Loss: &loss}); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("change of another's: %v", err)
	}
	if _, err := m.Renew(t.Context(), f.ID, "bob", 0); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("renewal by a name: %v", err)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid:8"); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("clear of another's: %v", err)
	}
	same, err := m.Apply(t.Context(), by("uid:7", "robert", s))
	if err != nil || same.ID != f.ID {
		t.Errorf("a repeated request of who was renamed: %+v, %v", same, err)
	}
	s8 := on("81")
	s8.RequestID = "r1"
	if other, err := m.Apply(t.Context(), by("uid:8", "bob", s8)); err != nil || other.ID == f.ID {
		t.Errorf("the request id of another of the same name: %+v, %v", other, err)
	}
	if _, err := m.Apply(t.Context(), by("uid:7", "robert", another)); err != nil {
		t.Errorf("beside one's own after a renaming: %v", err)
	}
	if _, err := m.Apply(t.Context(), by("uid:7", "bobby", on("83"))); !errors.Is(err, fault.ErrBusy) || !strings.Contains(err.Error(), "2 faults are held by bobby") {
		t.Errorf("more than one owner may have: %v", err)
	}
	h, err := m.Hold(t.Context(), by("uid:8", "bob", on("84")), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Resume(t.Context(), h.ID(), h.Token(), "uid:7"); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("resume of another's: %v", err)
	}
	if h, err = m.Resume(t.Context(), h.ID(), h.Token(), "uid:8"); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Resume(t.Context(), h.ID(), 1, "uid:8"); err == nil || !strings.Contains(err.Error(), "held by another client of bob since") {
		t.Errorf("an old token: %v", err)
	}
	if cleared, err := m.Clear(t.Context(), fault.Selector{All: true}, "uid:7"); err != nil || len(cleared) != 2 {
		t.Errorf("clear of all of one's own: %+v, %v", cleared, err)
	}
}
