package lease

import (
	"context"
	"testing"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
)

// around is an engine that does nothing but stand around another.
type around struct{ Engine }

func (a around) Unwrap() Engine { return a.Engine }

// capable is an engine that can do everything.
type capable struct{ *choosingEngine }

func (capable) Rematch(context.Context, target.Place, target.Match) error { return nil }
func (capable) Notes(target.Place) []string                               { return []string{"a note"} }

// What an engine can do is found behind others that stand around it.
func TestUnwrap(t *testing.T) {
	c := capable{newChoosingEngine()}
	for name, e := range map[string]Engine{"none": c, "one": around{c}, "two": around{around{c}}} {
		_, chooses := able[ContentEngine](e)
		_, follows := able[ContentFollower](e)
		_, moves := able[rematcher](e)
		_, notes := able[noter](e)
		if !chooses || !follows || !moves || !notes {
			t.Errorf("%s around it: content %t, followers %t, rematch %t, notes %t", name, chooses, follows, moves, notes)
		}
	}
	for name, e := range map[string]Engine{"a plain one": newFakeEngine(), "around a plain one": around{newFakeEngine()}, "nil": nil, "around nil": around{}} {
		if _, ok := able[ContentEngine](e); ok {
			t.Errorf("%s chooses packets", name)
		}
	}
	m, _ := newHost(t, c.fakeEngine, func(cfg *Config) { cfg.Engines = map[fault.Engine]Engine{fault.EBPF: around{c}} })
	f, err := m.Apply(t.Context(), dropOn("80", dropSYN))
	if err != nil || len(f.Warnings) != 1 || f.Warnings[0] != "a note" {
		t.Fatalf("%+v, %v", f, err)
	}
	cut := context.Canceled
	if err := m.FollowPackets(t.Context(), f.ID, "", func(content.Log) error { return cut }); err != cut { //nolint:errorlint // the very one
		t.Errorf("follow: %v", err)
	}
}
