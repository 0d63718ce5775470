package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
)

// seen watches until n events came, and returns their numbers.
func seen(m *Manager, n int, after uint64, life string) ([]fault.Event, error) {
	enough := errors.New("enough")
	var all []fault.Event
	err := m.Watch(context.Background(), after, life, func(e fault.Event) error {
		if all = append(all, e); len(all) == n {
			return enough
		}
		return nil
	})
	if errors.Is(err, enough) {
		err = nil
	}
	return all, err
}

// happen makes n events.
func happen(t testing.TB, m *Manager, n int) {
	t.Helper()
	f, err := m.Apply(t.Context(), loss(20))
	for range n - 2 {
		if err == nil {
			_, err = m.Renew(t.Context(), f.ID, "uid 0", 0)
		}
	}
	if err == nil {
		_, err = m.Clear(t.Context(), fault.Selector{ID: f.ID}, "")
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestWatchResumes(t *testing.T) {
	m := newManager(t, newFakeEngine())
	life := m.Life()
	if _, err := seen(m, 1, 1, life); !errors.Is(err, fault.ErrMissed) || !strings.Contains(err.Error(), "there is no event 1; life "+life+" has none yet") {
		t.Errorf("before there is any: %v", err)
	}
	happen(t, m, 3)
	all, err := seen(m, 3, 0, life)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, e := range all {
		got = append(got, fmt.Sprintf("%d %s %s", e.Number, e.Kind, e.Fault.Spec.Owner))
		if e.Life != life || e.Monotonic == 0 || i > 0 && (e.Monotonic < all[i-1].Monotonic || e.Time.Before(all[i-1].Time)) {
			t.Errorf("%+v", e)
		}
	}
	if diff := cmp.Diff([]string{"1 applied uid 0", "2 renewed uid 0", "3 cleared uid 0"}, got); diff != "" {
		t.Errorf("from the first on (-want +got):\n%s", diff)
	}
	for _, life := range []string{"", life} {
		if again, err := seen(m, 1, 2, life); err != nil || len(again) != 1 || again[0].Number != 3 {
			t.Errorf("after 2 of life %q: %v, %v", life, again, err)
		}
	}
	happen(t, m, KeptEvents)
	if _, err := seen(m, 1, 2, life); !errors.Is(err, fault.ErrMissed) || !strings.Contains(err.Error(), fmt.Sprintf("after 2 are no longer kept; life %s has 4 to %d", life, KeptEvents+3)) {
		t.Errorf("what is no longer kept: %v", err)
	}
	if all, err := seen(m, KeptEvents, 3, life); err != nil || len(all) != KeptEvents || all[0].Number != 4 || all[len(all)-1].Number != KeptEvents+3 {
		t.Errorf("all that is kept: %d, %v", len(all), err)
	}
	if _, err := seen(m, 1, 2, "xyz"); !errors.Is(err, fault.ErrMissed) || !strings.Contains(err.Error(), "those after 2 of life xyz went with that agent; this one is life "+life) {
		t.Errorf("of another life: %v", err)
	}
}

// Who is slow is told, and does not hold up anybody.
func TestSlowWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, newFakeEngine())
		hung, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- m.Watch(t.Context(), 0, "", func(fault.Event) error { <-hung; return nil })
		}()
		synctest.Wait()
		happen(t, m, 3)
		synctest.Wait()
		happen(t, m, 2*KeptEvents)
		close(hung)
		if err := <-done; !errors.Is(err, ErrSlowWatcher) || !errors.Is(err, fault.ErrMissed) {
			t.Errorf("%v, want %v", err, ErrSlowWatcher)
		}
		if n := len(m.events.subs); n > 0 {
			t.Errorf("%d watchers left", n)
		}
	})
}

// A watch ends after the last event of the Manager.
func TestWatchSeesTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newManager(t, newFakeEngine())
		if _, err := m.Apply(t.Context(), loss(20)); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		done := make(chan error, 1)
		go func() {
			done <- m.Watch(t.Context(), 0, "", func(e fault.Event) error {
				kinds = append(kinds, e.Kind)
				time.Sleep(time.Second)
				return nil
			})
		}()
		synctest.Wait()
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil || !cmp.Equal(kinds, []string{"cleared"}) {
			t.Errorf("%v, %v", kinds, err)
		}
	})
}

// Two lives whose ids begin with the same letters, of which there are few, are told apart.
func TestLivesOfTheSameLetters(t *testing.T) {
	of := map[string]*Manager{}
	for range 1000 {
		m := New(Config{Log: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() { _ = m.Close(context.Background()) })
		twin := of[m.prefix]
		if of[m.prefix] = m; twin == nil {
			continue
		}
		m.events.send("applied", fault.Fault{})
		err := m.Watch(t.Context(), 1, twin.Life(), func(fault.Event) error { return nil })
		if !errors.Is(err, fault.ErrMissed) || !strings.HasPrefix(m.Life(), m.prefix) || len(m.Life()) != 12 {
			t.Errorf("life %s goes on from an event of life %s: %v", m.Life(), twin.Life(), err)
		}
		return
	}
	t.Fatal("no two of 1000 lives have the same letters")
}
