package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// by is s of another owner, who waits.
func by(owner string, wait time.Duration, s fault.Spec) fault.Spec {
	s.Owner, s.Wait = owner, wait
	return s
}

// answers collects what applies in the background come to, in order.
type answers struct {
	mu  sync.Mutex
	all []string
	ids map[string]string
}

func (a *answers) add(name string, f fault.Fault, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.ids[name] = f.ID
	} else {
		name += " refused"
	}
	a.all = append(a.all, name)
}

func (a *answers) get() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}

// apply applies in the background, and returns when it has an answer or waits.
func (a *answers) apply(t *testing.T, m *Manager, name string, s fault.Spec) {
	go func() {
		f, err := m.Apply(t.Context(), s)
		a.add(name, f, err)
	}()
	synctest.Wait()
}

func (a *answers) clear(t *testing.T, m *Manager, name string) {
	t.Helper()
	a.mu.Lock()
	id := a.ids[name]
	a.mu.Unlock()
	if _, err := m.Clear(t.Context(), fault.Selector{ID: id}, ""); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

func TestWaitingInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newHost(t, newFakeEngine(), nil)
		a := &answers{ids: map[string]string{}}
		step := func(what string, want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, a.get()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		a.apply(t, m, "first", by("uid 1", 0, on("80")))
		a.apply(t, m, "second", by("uid 2", time.Minute, on("80-90")))
		a.apply(t, m, "third", by("uid 3", time.Minute, on("90")))
		a.apply(t, m, "fourth", by("uid 4", time.Minute, on("80")))
		a.apply(t, m, "elsewhere", by("uid 5", time.Minute, on("443")))
		step("while the first is held", "first", "elsewhere")
		a.apply(t, m, "does not wait", by("uid 6", 0, on("90")))
		step("who does not wait takes what is free", "does not wait")
		a.clear(t, m, "does not wait")
		a.apply(t, m, "its own", by("uid 1", time.Minute, with(on("80"), func(s *fault.Spec) { s.Packet = &qdisc.Netem{Delay: 1e6} })))
		step("the holder's own come before those who wait", "its own")
		a.clear(t, m, "first")
		step("the place is not free yet")
		a.clear(t, m, "its own")
		step("in the order in which they came", "second")
		a.clear(t, m, "second")
		if got := a.get(); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"fourth", "third"}) {
			t.Errorf("those who are not in each other's way come together: %v", got)
		}
		if m.Waiting() != 0 {
			t.Errorf("%d still wait", m.Waiting())
		}
	})
}

// Between the end of one and the turn of the next nobody slips in.
func TestTurnIsKeptFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, h := newHost(t, newFakeEngine(), nil)
		a := &answers{ids: map[string]string{}}
		a.apply(t, m, "first", by("uid 1", 0, on("80")))
		a.apply(t, m, "second", by("uid 2", time.Minute, on("80")))
		resolve, hung := m.cfg.Resolve, make(chan struct{})
		m.cfg.Resolve = func(ctx context.Context, s fault.Spec) (target.Target, error) {
			if s.Owner == "uid 2" {
				<-hung
			}
			return resolve(ctx, s)
		}
		a.clear(t, m, "first")
		a.apply(t, m, "third", by("uid 3", 0, on("80")))
		if _, err := m.Apply(t.Context(), by("uid 3", 0, on("80"))); !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), "is waited for by uid 2 since") {
			t.Errorf("somebody slipped in: %v", err)
		}
		h.protect(fault.ErrProtected) // the second one's turn ends with a refusal
		close(hung)
		synctest.Wait()
		h.protect(nil)
		a.apply(t, m, "fourth", by("uid 4", 0, on("80")))
		if diff := cmp.Diff([]string{"first", "third refused", "second refused", "fourth"}, a.get()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

func TestWaitedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		first, err := m.Apply(t.Context(), loss(20))
		if err != nil {
			t.Fatal(err)
		}
		before := len(m.lanes.all)
		var said []string
		began := time.Now()
		_, err = m.Hold(t.Context(), by("uid 7", 30*time.Second, loss(5)), func(conflict error) {
			said = append(said, conflict.Error())
			if got := len(m.lanes.all); got != before {
				t.Errorf("%d lanes are held while it waits", got)
			}
		})
		want := fmt.Sprintf("apply: waited 30s: conflict: pg is held by uid 0 with fault %s (applied 30s ago, ends in 9m30s); see 'netemctl show %s'", first.ID, first.ID)
		if !errors.Is(err, fault.ErrConflict) || err.Error() != want || time.Since(began) != 30*time.Second {
			t.Errorf("after %v: %v, want %s", time.Since(began), err, want)
		}
		if len(said) != 1 || !strings.Contains(said[0], "held by uid 0 with fault "+first.ID+" (applied 0s ago, ends in 10m0s)") {
			t.Errorf("said while waiting: %q", said)
		}
		if hint := fault.HintOf(err); hint != "" { // he has waited
			t.Errorf("hint %q", hint)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("the client is gone")
		go func() {
			time.Sleep(time.Second)
			cancel(gone)
		}()
		s := by("uid 7", time.Minute, loss(5))
		s.RequestID = "r"
		if _, err := m.Apply(ctx, s); !errors.Is(err, gone) {
			t.Errorf("a client that went away: %v", err)
		}
		if m.Waiting() != 0 || len(m.requests) != 0 || len(m.lanes.all) != before {
			t.Errorf("left: %d waiting, requests %v, lanes %v", m.Waiting(), m.requests, m.lanes.all)
		}
		if list := m.List(t.Context()); len(list) != 1 {
			t.Errorf("listed: %v", list)
		}
	})
}

func TestWaitForTheEndOfTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		s := loss(20)
		s.TTL = 5 * time.Second
		if _, err := m.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		f, err := m.Apply(t.Context(), by("uid 7", time.Minute, loss(5)))
		if err != nil || time.Since(began) != 5*time.Second || !f.Expires.Equal(time.Now().Add(fault.DefaultTTL)) {
			t.Errorf("after %v: %+v, %v; its time is to begin with it", time.Since(began), f, err)
		}
		// An engine that is in the way is, too.
		netem := by("uid 7", time.Second, delay(time.Millisecond))
		netem.Engine = fault.Netem
		if _, err := m.Apply(t.Context(), netem); !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), "waited 1s") ||
			!strings.Contains(err.Error(), "held by uid 7 with fault "+f.ID) {
			t.Errorf("another engine: %v", err)
		}
	})
}

func TestWaitingIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newHost(t, newFakeEngine(), func(c *Config) { c.Limits.Waiting = 2 })
		a := &answers{ids: map[string]string{}}
		for i := range 3 {
			a.apply(t, m, fmt.Sprint(i), by(fmt.Sprint("uid ", i), time.Minute, on("80")))
		}
		_, err := m.Apply(t.Context(), by("uid 9", time.Minute, on("80")))
		if !errors.Is(err, fault.ErrBusy) || errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), "2 wait for the end of a fault, which is the most (limits.waiting)") {
			t.Errorf("one too many: %v", err)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"0", "1 refused", "2 refused"}, slices.Sorted(slices.Values(a.get()))); diff != "" || m.Waiting() != 0 {
			t.Errorf("(-want +got):\n%s, %d wait", diff, m.Waiting())
		}
	})
}

// One owner has no more than a quarter of the places, by whatever name.
func TestWaitingIsSharedAmongOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := newHost(t, newFakeEngine(), func(c *Config) { c.Limits.Waiting = 8 })
		a := &answers{ids: map[string]string{}}
		a.apply(t, m, "first", by("uid 0", 0, on("80")))
		seven := func(name string) fault.Spec {
			s := by(name, time.Minute, on("80"))
			s.OwnerKey = "uid:7"
			return s
		}
		for i := range 2 {
			a.apply(t, m, fmt.Sprint("seven ", i), seven("bob"))
		}
		_, err := m.Apply(t.Context(), seven("robert"))
		if !errors.Is(err, fault.ErrBusy) || !strings.Contains(err.Error(), "2 of robert wait for the end of a fault, which is the most for one owner (a quarter of limits.waiting)") {
			t.Errorf("one too many of an owner: %v", err)
		}
		for i := range 6 {
			a.apply(t, m, fmt.Sprint("other ", i), by(fmt.Sprint("uid ", i/2), time.Minute, on("80")))
		}
		if n := m.Waiting(); n != 8 {
			t.Errorf("%d wait", n)
		}
		if OwnerShare(1) != 1 || OwnerShare(7) != 1 || OwnerShare(64) != 16 {
			t.Error("a share is no quarter, or nothing")
		}
	})
}

func TestLimits(t *testing.T) {
	m, _ := newHost(t, newFakeEngine(), func(c *Config) {
		c.Limits = Limits{Faults: 3, PerOwner: 2, TTL: time.Minute, MaxTTL: time.Hour}
	})
	refused := func(s fault.Spec, is error, want string) {
		t.Helper()
		if _, err := m.Apply(t.Context(), s); !errors.Is(err, is) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	f, err := m.Apply(t.Context(), on("80"))
	if err != nil || f.Spec.TTL != time.Minute || f.Expires.Sub(f.Applied) != time.Minute {
		t.Errorf("%+v, %v, want a TTL of 1m", f, err)
	}
	long := with(on("81"), func(s *fault.Spec) { s.TTL = 2 * time.Hour })
	refused(long, qdisc.ErrInvalid, "a time from 1s to 1h, the most that this agent allows (ttl.max of its configuration)")
	if _, err := m.Renew(t.Context(), f.ID, "uid 0", 2*time.Hour); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("renew: %v", err)
	}
	refused(with(on("81"), func(s *fault.Spec) { s.TTL = 25 * time.Hour }), qdisc.ErrInvalid, "a time from 1s to 24h")
	refused(with(on("81"), func(s *fault.Spec) { s.Wait = -1 }), qdisc.ErrInvalid, "wait")
	refused(with(on("81"), func(s *fault.Spec) { s.Wait = 2 * time.Hour }), qdisc.ErrInvalid, "a time from 0s to 1h")
	if _, err := m.Apply(t.Context(), on("81")); err != nil {
		t.Fatal(err)
	}
	refused(on("82"), fault.ErrBusy, "2 faults are held by uid 0, which is the most for one owner (limits.faults_per_owner)")
	if _, err := m.Apply(t.Context(), by("uid 1", 0, on("82"))); err != nil {
		t.Fatal(err)
	}
	refused(by("uid 2", 0, on("83")), fault.ErrBusy, "3 faults are held, which is the most (limits.faults)")
}

// Whose time ends while what was in the way is already gone has his turn.
func TestWaitEndsInAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m, _ := newHost(t, e, nil)
		first, err := m.Apply(t.Context(), with(on("80"), func(s *fault.Spec) { s.Packet = &qdisc.Netem{Loss: 20, Delay: 1e6} }))
		if err != nil {
			t.Fatal(err)
		}
		a := &answers{ids: map[string]string{}}
		a.apply(t, m, "second", by("uid 0", 5*time.Second, on("80")))
		e.failSets(func(target.Place, qdisc.Netem) error {
			e.mu.Unlock()
			time.Sleep(10 * time.Second)
			e.mu.Lock()
			return nil
		})
		none := qdisc.Percent(0)
		if _, err := m.Change(t.Context(), first.ID, "uid 0", 0, qdisc.Patch{Loss: &none}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if diff := cmp.Diff([]string{"second"}, a.get()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
