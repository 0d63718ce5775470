package lease

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// repaired runs f with a manager that looks twice a second, on a host whose device v0 can
// go and come back with another number.
func repaired(t *testing.T, f func(*testing.T, *fakeEngine, *Manager, *movingHost)) {
	synctest.Test(t, func(t *testing.T) {
		e, j := newFakeEngine(), newFakeJournal()
		host := &movingHost{index: 10}
		m, h := newHost(t, e, func(c *Config) {
			withJournal(e, j)(c)
			c.LookEvery, c.Resolve = 500*time.Millisecond, host.resolve
		})
		host.fakeHost = h
		f(t, e, m, host)
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if len(j.open) > 0 || len(e.inForce()) > 0 {
			t.Errorf("left: journal %v, in force %v", j.open, e.inForce())
		}
	})
}

type movingHost struct {
	*fakeHost
	index int // of v0, 0 while it is gone
	proxy netip.AddrPort
}

func (h *movingHost) resolve(ctx context.Context, s fault.Spec) (target.Target, error) {
	h.mu.Lock()
	index, proxy := h.index, h.proxy
	h.mu.Unlock()
	t, err := h.fakeHost.resolve(ctx, s)
	if err != nil {
		return t, err
	}
	if s.Selector == nil || s.Selector.Device != "v0" {
		return t, nil
	}
	if index == 0 {
		return t, &qdisc.FieldError{Field: "dev", Value: "v0", Want: "a device that exists"}
	}
	t.To.Index, t.From.Index, t.Proxy = index, index, proxy
	return t, nil
}

// move makes the device another one, or takes it away.
func (h *movingHost) move(e *fakeEngine, index int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	h.index = index
	clear(e.at)
	e.exists = func(p target.Place) bool { return p.Index == index }
}

// mending are specs that are repaired.
func mendingSpec(s fault.Spec) fault.Spec {
	s.Repair = true
	return s
}

// after lets d pass, and what is to happen then.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// kindsOf are the events so far.
func kindsOf(t *testing.T, m *Manager) []string {
	t.Helper()
	all, _, err := m.events.after(0)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, e := range all {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}

func TestRepairOfWhatWasChanged(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, _ *movingHost) {
		f, err := m.Apply(t.Context(), mendingSpec(on("80")))
		if err != nil {
			t.Fatal(err)
		}
		left, err := m.Apply(t.Context(), on("81"))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{f.ID, left.ID} {
			e.meddle(m.held[id].slots[0].place, qdisc.Netem{Loss: 1})
		}
		after(time.Second)
		if diff := cmp.Diff([]string{"applied", "applied", "drifted", "drifted", "repaired"}, kindsOf(t, m)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		want := map[string]bool{"+6,invalid Prefix,invalid Prefix,any,80 - false: loss 20%": true, "+6,invalid Prefix,invalid Prefix,any,81 - false: loss 1%": true}
		if diff := cmp.Diff(want, matches(e)); diff != "" {
			t.Errorf("only what asked for it is put back (-want +got):\n%s", diff)
		}
		if got, _ := m.Get(t.Context(), f.ID); got.State != fault.Active || len(got.Warnings) > 0 {
			t.Errorf("%+v", got)
		}
	})
}

// Two who want something else of a place do not hand it over to each other for good.
func TestRepairGivesUp(t *testing.T) {
	for name, tt := range map[string]struct {
		set  error // what a try meets
		want string
	}{
		"somebody changes it each time": {nil, "it was put back 5 times and did not last, which is not tried again"},
		"it cannot be set":              {errBroken, "it could not be put back, which was tried 5 times: broken"},
	} {
		t.Run(name, func(t *testing.T) {
			repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, _ *movingHost) {
				f, err := m.Apply(t.Context(), mendingSpec(on("80")))
				if err != nil {
					t.Fatal(err)
				}
				e.done()
				place := m.held[f.ID].slots[0].place
				tries := 0
				e.failSets(func(target.Place, qdisc.Netem) error { tries++; return tt.set })
				for range 100 {
					e.meddle(place, qdisc.Netem{Loss: 1})
					after(100 * time.Millisecond)
				}
				if tries != repairTries {
					t.Errorf("%d tries in 10 s, want %d", tries, repairTries)
				}
				got, _ := m.Get(t.Context(), f.ID)
				if w := strings.Join(got.Warnings, "\n"); got.State != fault.Drifted || !strings.Contains(w, tt.want) {
					t.Errorf("%s, warnings %q, want %q", got.State, w, tt.want)
				}
				e.failSets(nil)
				e.meddle(place, qdisc.Netem{Loss: 20}) // he gave in
				after(steadyTime + time.Second)
				got, _ = m.Get(t.Context(), f.ID)
				if got.State != fault.Active || len(got.Warnings) > 0 {
					t.Errorf("after it stood for a while: %s, warnings %q", got.State, got.Warnings)
				}
				e.meddle(place, qdisc.Netem{Loss: 1})
				after(time.Second)
				if got, _ = m.Get(t.Context(), f.ID); got.State != fault.Active {
					t.Errorf("it is %s, and not put back again", got.State)
				}
			})
		})
	}
}

// A device that was made anew is another one, which the names lead to.
func TestRepairOfWhatCameBack(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, h *movingHost) {
		specs := []fault.Spec{mendingSpec(on("80")), mendingSpec(with(on("80"), func(s *fault.Spec) { s.Packet = &qdisc.Netem{Delay: 1e6} })), on("81")}
		var ids []string
		for _, s := range specs {
			f, err := m.Apply(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, f.ID)
		}
		e.count(fault.Counters{Seen: 10, Lost: 2})
		m.List(t.Context())
		h.move(e, 0)
		after(30 * time.Second)
		for _, f := range m.List(t.Context()) {
			if f.State != fault.Lost {
				t.Errorf("%s is %s without its device", f.ID, f.State)
			}
		}
		h.move(e, 99)
		after(2 * time.Second)
		if diff := cmp.Diff(map[string]bool{"+6,invalid Prefix,invalid Prefix,any,80 - false: loss 20% delay 1ms": true}, matches(e)); diff != "" {
			t.Errorf("in force (-want +got):\n%s", diff)
		}
		for i, id := range ids {
			f, err := m.Get(t.Context(), id)
			want := fault.Active
			if i == 2 {
				want = fault.Lost
			}
			if err != nil || f.State != want || f.Counters.Lost != 2 || len(f.Warnings) > 0 {
				t.Errorf("%d: %s, %+v, %q, want it %s with what it counted before", i, f.State, f.Counters, f.Warnings, want)
			}
		}
		if _, err := m.Renew(t.Context(), ids[0], "uid 0", 0); err != nil {
			t.Errorf("renewing what came back: %v", err)
		}
		kinds := strings.Join(kindsOf(t, m), " ")
		if !strings.HasPrefix(kinds, "applied applied applied lost lost lost repaired repaired") {
			t.Errorf("events: %s", kinds)
		}
	})
}

// What must not be there, or is somebody else's by now, stays lost.
func TestRepairThatIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(*testing.T, *Manager, *movingHost)
		want    string
	}{
		"protected": {func(_ *testing.T, _ *Manager, h *movingHost) { h.protect(fault.ErrProtected) }, "protected"},
		"held by another": {func(t *testing.T, m *Manager, _ *movingHost) {
			if _, err := m.Apply(t.Context(), by("uid 7", 0, on("80"))); err != nil {
				t.Fatal(err)
			}
		}, "held by uid 7"},
	} {
		t.Run(name, func(t *testing.T) {
			repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, h *movingHost) {
				f, err := m.Apply(t.Context(), mendingSpec(on("80")))
				if err != nil {
					t.Fatal(err)
				}
				h.move(e, 0)
				after(time.Second)
				h.move(e, 99) // nobody looks before time goes on
				tt.prepare(t, m, h)
				inForce := len(e.inForce())
				after(5 * time.Second)
				got, _ := m.Get(t.Context(), f.ID)
				if w := strings.Join(got.Warnings, "\n"); got.State != fault.Lost || !strings.Contains(w, tt.want) || len(e.inForce()) != inForce {
					t.Errorf("%s, warnings %q, want %q", got.State, w, tt.want)
				}
			})
		})
	}
}

// A place that is there but cannot be set is left again.
func TestRepairThatFailsHalfWay(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, h *movingHost) {
		f, err := m.Apply(t.Context(), mendingSpec(with(on("80"), func(s *fault.Spec) { s.Direction = fault.Both })))
		if err != nil {
			t.Fatal(err)
		}
		h.move(e, 99)
		e.failSets(func(p target.Place, _ qdisc.Netem) error {
			if p.Hook == target.Ingress {
				return errBroken
			}
			return nil
		})
		after(3 * time.Second)
		if got, _ := m.Get(t.Context(), f.ID); got.State != fault.Lost || len(e.inForce()) > 0 {
			t.Errorf("%s, in force %v", got.State, e.inForce())
		}
		e.failSets(nil)
		after(2 * time.Second)
		if got, _ := m.Get(t.Context(), f.ID); got.State != fault.Active || len(e.inForce()) != 2 {
			t.Errorf("once it works: %s, in force %v", got.State, e.inForce())
		}
	})
}

// Offload settings go along to the new device.
func TestRepairSwitchesOffloadOff(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, h *movingHost) {
		o := &fakeOffloads{off: map[string]bool{}}
		m.cfg.Offloads = o
		f, err := m.Apply(t.Context(), mendingSpec(with(on("80"), func(s *fault.Spec) { s.Offload = fault.OffloadOff })))
		if err != nil {
			t.Fatal(err)
		}
		h.move(e, 99)
		after(2 * time.Second)
		got, _ := m.Get(t.Context(), f.ID)
		if got.State != fault.Active || len(o.off) != 1 || len(got.Offloads) == 0 {
			t.Errorf("%s, switched off %v, %+v", got.State, o.off, got.Offloads)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, ""); err != nil || len(o.off) > 0 {
			t.Errorf("clear: %v, still off %v", err, o.off)
		}
	})
}

// A proxy that came back has its toxics again.
func TestRepairOfAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, p := newFakeEngine(), &fakeProxy{toxics: map[string][]fault.Toxic{}}
		m := newManagerWith(t, e, p)
		f, err := m.Apply(t.Context(), mendingSpec(toxic("pg", fault.Toxic{Kind: fault.Down})))
		if err != nil {
			t.Fatal(err)
		}
		p.gone = fs.ErrNotExist
		if got, _ := m.Get(t.Context(), f.ID); got.State != fault.Lost {
			t.Errorf("%s without its proxy", got.State)
		}
		m.looking.Wait()
		p.toxics, p.gone = map[string][]fault.Toxic{}, nil
		after(2 * time.Second)
		m.List(t.Context())
		m.looking.Wait()
		if got, _ := m.Get(t.Context(), f.ID); got.State != fault.Active || len(p.toxics["pg"]) != 1 {
			t.Errorf("%s, toxics %v", got.State, p.toxics)
		}
	})
}

// A repair that hangs does not hold up the Manager's end.
func TestCloseInterruptsRepair(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, h *movingHost) {
		if _, err := m.Apply(t.Context(), mendingSpec(on("80"))); err != nil {
			t.Fatal(err)
		}
		m.cfg.Resolve = func(ctx context.Context, _ fault.Spec) (target.Target, error) {
			<-ctx.Done()
			return target.Target{}, errors.New("interrupted")
		}
		h.move(e, 0)
		after(time.Second)
		began := time.Now()
		if err := m.Close(t.Context()); err != nil || time.Since(began) > time.Second {
			t.Errorf("closed after %v, %v", time.Since(began), err)
		}
	})
}

// A repair that could not be tried does not write into a fault that somebody else changes.
func TestRepairStaysOutOfTheLane(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, _ *movingHost) {
		f, err := m.Apply(t.Context(), mendingSpec(on("80")))
		if err != nil {
			t.Fatal(err)
		}
		tries := make(chan struct{})
		e.failSets(func(target.Place, qdisc.Netem) error {
			e.mu.Unlock()
			<-tries
			e.mu.Lock()
			return errBroken
		})
		e.meddle(m.held[f.ID].slots[0].place, qdisc.Netem{Loss: 1})
		after(600 * time.Millisecond) // the repair is in the lane
		go func() {
			h, leave, err := m.enterFault(t.Context(), f.ID)
			if err != nil {
				t.Error(err)
				return
			}
			defer leave()
			before := len(h.fault.Warnings)
			time.Sleep(3 * lookTime)
			if n := len(h.fault.Warnings); n != before {
				t.Errorf("%d warnings became %d while somebody else was in the lane", before, n)
			}
		}()
		synctest.Wait()
		close(tries)
		e.failSets(nil)
		after(5 * lookTime)
		if got, _ := m.Get(t.Context(), f.ID); got.State != fault.Active || len(got.Warnings) > 0 {
			t.Errorf("%+v", got)
		}
	})
}
