package lease

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// toDB is a fault on the packets to a host name.
func toDB(n qdisc.Netem) fault.Spec {
	return fault.Spec{Owner: "uid 0", TTL: time.Hour, Selector: &target.Selector{Namespace: "blue", Device: "v0", Peers: []string{"db"}}, Packet: &n}
}

// inBubble runs f with a manager that looks names up every 10 s.
func inBubble(t *testing.T, f func(*testing.T, *fakeEngine, *Manager, *fakeHost)) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m, h := newHost(t, e, func(c *Config) { c.LookupEvery = 10 * time.Second })
		h.set("db", "10.0.0.1")
		f(t, e, m, h)
	})
}

// nextLookup waits until names have been looked up again.
func nextLookup() {
	time.Sleep(10 * time.Second)
	synctest.Wait()
}

func TestHostNameMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, e *fakeEngine, m *Manager, h *fakeHost) {
		f, err := m.Apply(t.Context(), toDB(qdisc.Netem{Loss: 20}))
		if err != nil {
			t.Fatal(err)
		}
		events := watch(t, m)
		e.done()
		e.count(fault.Counters{Seen: 10, Lost: 2})
		nextLookup()
		if ops := e.done(); len(ops) > 0 {
			t.Errorf("the same addresses: %v", ops)
		}
		h.set("db", "10.0.0.2 10.0.0.1")
		nextLookup()
		want := []string{"set to 10.0.0.1/32 or to 10.0.0.2/32", "clear to 10.0.0.1/32"}
		if diff := cmp.Diff(want, e.done()); diff != "" {
			t.Errorf("first the new, then the old (-want +got):\n%s", diff)
		}
		got, err := m.Get(t.Context(), f.ID)
		if err != nil || got.Counters != (fault.Counters{Seen: 10, Lost: 2}) || got.State != fault.Active || len(got.Warnings) > 0 {
			t.Errorf("%+v, %v, want what was counted before, and no warning", got, err)
		}
		if kind := <-events; kind != "changed" {
			t.Errorf("event %s, want changed", kind)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid 0"); err != nil {
			t.Fatal(err)
		}
		if got := e.inForce(); len(got) > 0 {
			t.Errorf("after clear: %v", got)
		}
	})
}

func TestFailingLookupKeepsWhatIsThere(t *testing.T) {
	inBubble(t, func(t *testing.T, e *fakeEngine, m *Manager, h *fakeHost) {
		f, err := m.Apply(t.Context(), toDB(qdisc.Netem{Loss: 20}))
		if err != nil {
			t.Fatal(err)
		}
		e.done()
		h.set("db", "!")
		nextLookup()
		got, _ := m.Get(t.Context(), f.ID)
		if w := strings.Join(got.Warnings, "\n"); !strings.Contains(w, `look up host "db": no such host`) || !strings.Contains(w, "the addresses from before stand") {
			t.Errorf("warnings %q", w)
		}
		if ops := e.done(); len(ops) > 0 {
			t.Errorf("the kernel was touched: %v", ops)
		}
		h.set("db", "10.0.0.1")
		nextLookup()
		if got, _ := m.Get(t.Context(), f.ID); len(got.Warnings) > 0 {
			t.Errorf("warnings after it works again: %q", got.Warnings)
		}
		if _, err := m.Apply(t.Context(), with(toDB(qdisc.Netem{Loss: 5}), func(s *fault.Spec) { s.Selector.Peers = []string{"nowhere"} })); err == nil {
			t.Error("a fault on a name that nobody knows was applied")
		}
	})
}

// Faults with the same names stay on the same packets, whatever the name server says
// at the second one's beginning, and move together.
func TestTwinsMoveTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, e *fakeEngine, m *Manager, h *fakeHost) {
		first, err := m.Apply(t.Context(), toDB(qdisc.Netem{Loss: 20}))
		if err != nil {
			t.Fatal(err)
		}
		h.set("db", "10.0.0.9")
		if _, err := m.Apply(t.Context(), toDB(qdisc.Netem{Delay: time.Second})); err != nil {
			t.Fatal(err)
		}
		both := func(address string) map[string]bool {
			return map[string]bool{fmt.Sprintf("+0,invalid Prefix,%s/32,any,any - false: loss 20%% delay 1s", address): true}
		}
		if diff := cmp.Diff(both("10.0.0.1"), matches(e)); diff != "" {
			t.Errorf("at first (-want +got):\n%s", diff)
		}
		nextLookup()
		if diff := cmp.Diff(both("10.0.0.9"), matches(e)); diff != "" {
			t.Errorf("moved (-want +got):\n%s", diff)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{ID: first.ID}, "uid 0"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]bool{"+0,invalid Prefix,10.0.0.9/32,any,any - false: delay 1s": true}, matches(e)); diff != "" {
			t.Errorf("after the first was cleared (-want +got):\n%s", diff)
		}
	})
}

func TestMoveThatIsNotPossible(t *testing.T) {
	broken := errors.New("broken")
	for name, tt := range map[string]struct {
		prepare func(*testing.T, *fakeEngine, *Manager, *fakeHost)
		want    string
	}{
		"a fault is there already": {func(t *testing.T, _ *fakeEngine, m *Manager, _ *fakeHost) {
			if _, err := m.Apply(t.Context(), with(toDB(qdisc.Netem{Loss: 5}), func(s *fault.Spec) {
				s.Selector.Peers = []string{"10.0.0.0/30"}
				s.Selector.ExcludePeers = []string{"10.0.0.1"}
			})); err != nil {
				t.Fatal(err)
			}
		}, "overlaps"},
		"protected": {func(_ *testing.T, _ *fakeEngine, _ *Manager, h *fakeHost) { h.protect(fault.ErrProtected) }, "protected"},
		"the engine fails": {func(_ *testing.T, e *fakeEngine, _ *Manager, _ *fakeHost) {
			e.failSets(func(target.Place, qdisc.Netem) error { return broken })
		}, "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *fakeEngine, m *Manager, h *fakeHost) {
				f, err := m.Apply(t.Context(), toDB(qdisc.Netem{Loss: 20}))
				if err != nil {
					t.Fatal(err)
				}
				tt.prepare(t, e, m, h)
				before := e.inForce()
				h.set("db", "10.0.0.2")
				nextLookup()
				if diff := cmp.Diff(before, e.inForce()); diff != "" {
					t.Errorf("in force (-want +got):\n%s", diff)
				}
				got, _ := m.Get(t.Context(), f.ID)
				if w := strings.Join(got.Warnings, "\n"); !strings.Contains(w, tt.want) {
					t.Errorf("warnings %q, want %q", w, tt.want)
				}
				h.protect(nil)
				e.failSets(nil)
				if tt.want == "overlaps" {
					return
				}
				nextLookup()
				if diff := cmp.Diff(map[string]bool{"+0,invalid Prefix,10.0.0.2/32,any,any - false: loss 20%": true}, matches(e)); diff != "" {
					t.Errorf("once it is possible (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestPlaceThatCannotBeLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, e *fakeEngine, m *Manager, h *fakeHost) {
		f, err := m.Apply(t.Context(), toDB(qdisc.Netem{Loss: 20}))
		if err != nil {
			t.Fatal(err)
		}
		h.set("db", "10.0.0.2")
		e.failClear(errors.New("not now"))
		nextLookup()
		got, _ := m.Get(t.Context(), f.ID)
		if w := strings.Join(got.Warnings, "\n"); !strings.Contains(w, "could not be left: not now") || len(e.inForce()) != 2 {
			t.Errorf("warnings %q, in force %v", w, e.inForce())
		}
		e.failClear(nil)
		nextLookup()
		got, _ = m.Get(t.Context(), f.ID)
		if len(got.Warnings) > 0 || len(e.inForce()) != 1 {
			t.Errorf("after the next look-up: %q, in force %v", got.Warnings, e.inForce())
		}
		h.set("db", "10.0.0.3")
		e.failClear(errors.New("not now"))
		nextLookup()
		e.failClear(nil)
		if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid 0"); err != nil || len(e.inForce()) > 0 {
			t.Errorf("clear: %v, in force %v", err, e.inForce())
		}
	})
}

// A target that moves is looked for again as host names are; one that is reached by another
// device keeps its fault where it is, with a warning.
func TestTargetMoves(t *testing.T) {
	inBubble(t, func(t *testing.T, e *fakeEngine, m *Manager, h *fakeHost) {
		byTarget := m.cfg.Resolve
		var elsewhere atomic.Bool
		m.cfg.Resolve = func(ctx context.Context, s fault.Spec) (target.Target, error) {
			if s.Target != "web" {
				return byTarget(ctx, s)
			}
			t, err := byTarget(ctx, toDB(qdisc.Netem{}))
			if t.Moves = true; elsewhere.Load() {
				t.To.Index, t.From.Index, t.To.Device = 99, 99, "w0"
			}
			return t, err
		}
		spec := fault.Spec{Owner: "uid 0", TTL: time.Hour, Target: "web", Packet: &qdisc.Netem{Loss: 20}}
		f, err := m.Apply(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		e.done()
		h.set("db", "10.0.0.2")
		nextLookup()
		if diff := cmp.Diff([]string{"set to 10.0.0.2/32", "clear to 10.0.0.1/32"}, e.done()); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		elsewhere.Store(true)
		nextLookup()
		got, err := m.Get(t.Context(), f.ID)
		if err != nil || len(e.done()) > 0 || !strings.Contains(strings.Join(got.Warnings, " "), "its packets leave by w0 now") {
			t.Errorf("%+v, %v, want it where it was, with a warning", got, err)
		}
		elsewhere.Store(false)
		nextLookup()
		if got, err = m.Get(t.Context(), f.ID); err != nil || len(got.Warnings) > 0 {
			t.Errorf("%+v, %v, want no warning", got, err)
		}
	})
}
