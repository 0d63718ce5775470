package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

func follows(s fault.Spec) fault.Spec {
	s.Reattach = true
	return s
}

// What was restarted many times is impaired each time it is back, under the same id and until
// the same time, with what it counted before; one that was not asked to follow is lost.
func TestReattachAgainAndAgain(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, h *movingHost) {
		f, err := m.Apply(t.Context(), follows(on("80")))
		if err != nil {
			t.Fatal(err)
		}
		second, err := m.Apply(t.Context(), follows(with(on("80"), func(s *fault.Spec) { s.Packet = &qdisc.Netem{Delay: 1e6} })))
		if err != nil {
			t.Fatal(err)
		}
		stays, err := m.Apply(t.Context(), on("81"))
		if err != nil {
			t.Fatal(err)
		}
		e.count(fault.Counters{Seen: 10, Lost: 2})
		m.List(t.Context())
		const restarts = 50
		for i := range restarts {
			h.move(e, 0)
			after(700 * time.Millisecond)
			for _, id := range []string{f.ID, second.ID, stays.ID} {
				if got := m.held[id].fault; got.State != fault.Lost || got.Reason == "" {
					t.Fatalf("restart %d: %s is %s within 700 ms: %q", i, id, got.State, got.Reason)
				}
			}
			h.move(e, 100+i)
			after(1100 * time.Millisecond)
			want := map[string]bool{"+6,invalid Prefix,invalid Prefix,any,80 - false: loss 20% delay 1ms": true}
			if diff := cmp.Diff(want, matches(e)); diff != "" {
				t.Fatalf("restart %d: in force (-want +got):\n%s", i, diff)
			}
		}
		for _, id := range []string{f.ID, second.ID} {
			got, err := m.Get(t.Context(), id)
			if err != nil || got.State != fault.Active || got.Reason != "" || got.Counters.Lost != 2 || got.Total.Lost != 2 {
				t.Errorf("%s: %s, %q, %+v, %v", id, got.State, got.Reason, got.Counters, err)
			}
			if w := strings.Join(got.Warnings, "\n"); !strings.Contains(w, "nothing was impaired from ") || !strings.Contains(w, "that was the 50. time") || strings.Contains(w, "looked for") {
				t.Errorf("%s: warnings %q", id, w)
			}
		}
		if got, _ := m.Get(t.Context(), f.ID); !got.Expires.Equal(f.Expires) || !got.Applied.Equal(f.Applied) {
			t.Errorf("it lasts until %v, not %v", got.Expires, f.Expires)
		}
		count := map[string]int{}
		all, _, _ := m.events.after(0)
		for _, ev := range all {
			count[ev.Kind]++
		}
		if got, _ := m.Get(t.Context(), stays.ID); got.State != fault.Lost || count["repaired"] != 0 || count["reattached"] > 2*restarts || count["reattached"] < 2*restarts-10 && len(all) < 200 {
			t.Errorf("%s, events %v", got.State, count)
		}
		if cleared, err := m.Clear(t.Context(), fault.Selector{ID: stays.ID}, ""); err != nil || len(cleared) != 1 || !strings.Contains(cleared[0].Reason, "gone") {
			t.Errorf("clearing what is lost: %+v, %v; want it cleared with the reason", cleared, err)
		}
	})
}

// A reattachment tells its own event, once, after the one that tells that it is lost.
func TestReattachedEvent(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, h *movingHost) {
		f, err := m.Apply(t.Context(), follows(on("80")))
		if err != nil {
			t.Fatal(err)
		}
		h.move(e, 0)
		after(10 * time.Second)
		if w := strings.Join(m.held[f.ID].fault.Warnings, "\n"); !strings.Contains(w, "its target is looked for twice a second: ") || !strings.Contains(w, "v0") {
			t.Errorf("while it is away: %q", w)
		}
		h.move(e, 99)
		after(2 * time.Second)
		e.meddle(m.held[f.ID].slots[0].place, qdisc.Netem{Loss: 1}) // no place that went: that is a repair's
		after(2 * time.Second)
		if diff := cmp.Diff([]string{"applied", "lost", "reattached", "drifted"}, kindsOf(t, m)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

// A target that goes again while it is put there, and one that is cleared meanwhile.
func TestReattachRaces(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, h *movingHost) {
		f, err := m.Apply(t.Context(), follows(with(on("80"), func(s *fault.Spec) { s.Direction = fault.Both })))
		if err != nil {
			t.Fatal(err)
		}
		h.move(e, 0)
		after(time.Second)
		tries := 0
		e.failSets(func(p target.Place, _ qdisc.Netem) error {
			if p.Hook == target.Ingress {
				tries++
				return fmt.Errorf("it went again: %w", fs.ErrNotExist)
			}
			return nil
		})
		h.move(e, 99)
		after(10 * time.Second)
		if got := m.held[f.ID].fault; got.State != fault.Lost || tries < 15 || len(e.inForce()) > 0 {
			t.Errorf("%s after %d tries, in force %v", got.State, tries, e.inForce())
		}
		// Clear comes while a try is in the lane: it waits, and nothing is left.
		started, goOn := make(chan struct{}), make(chan struct{})
		e.failSets(func(p target.Place, _ qdisc.Netem) error {
			if p.Hook == target.Ingress {
				e.mu.Unlock()
				started <- struct{}{}
				<-goOn
				e.mu.Lock()
			}
			return nil
		})
		<-started
		cleared := make(chan error)
		go func() {
			_, err := m.Clear(context.Background(), fault.Selector{ID: f.ID}, "")
			cleared <- err
		}()
		synctest.Wait()
		close(goOn)
		if err := <-cleared; err != nil || len(e.inForce()) > 0 {
			t.Errorf("cleared while it came back: %v, in force %v", err, e.inForce())
		}
		e.failSets(nil)
		after(3 * time.Second)
		if len(e.inForce()) > 0 {
			t.Errorf("it came back after it was cleared: %v", e.inForce())
		}
	})
}

// The number of a process is given again, so what it led to is found no other way.
func TestReattachThroughAProcess(t *testing.T) {
	for name, tt := range map[string]struct {
		cookie uint64
		err    error
		state  fault.State
		want   string
	}{
		"another device in the same namespace": {7, nil, fault.Active, "nothing was impaired"},
		"another process":                      {8, nil, fault.Lost, "the number of one that ended is given again"},
		"no process": {7, fmt.Errorf("target pid:4711: %w: %w", target.ErrVanished, fs.ErrNotExist), fault.Lost,
			"a process does not come back"},
	} {
		t.Run(name, func(t *testing.T) {
			repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, h *movingHost) {
				var mu sync.Mutex
				cookie, index, asked, failing := uint64(7), 10, 0, error(nil)
				m.cfg.Resolve = func(context.Context, fault.Spec) (target.Target, error) {
					mu.Lock()
					defer mu.Unlock()
					asked++
					p := target.Place{Namespace: "/proc/4711/ns/net", Device: "eth0", Index: index, Cookie: cookie, Hook: target.Ingress}
					return target.Target{Name: "pid:4711", Definition: target.Definition{PID: 4711}, To: p, From: p}, failing
				}
				f, err := m.Apply(t.Context(), follows(fault.Spec{Owner: "uid 0", Target: "pid:4711", Packet: &qdisc.Netem{Loss: 20}}))
				if err != nil {
					t.Fatal(err)
				}
				h.move(e, 20)
				mu.Lock()
				cookie, index, failing = tt.cookie, 20, tt.err
				mu.Unlock()
				after(3 * time.Second)
				mu.Lock()
				before := asked
				mu.Unlock()
				after(10 * time.Second)
				got := m.held[f.ID].fault
				if w := strings.Join(got.Warnings, "\n"); got.State != tt.state || !strings.Contains(w, tt.want) {
					t.Errorf("%s, warnings %q, want %s and %q", got.State, w, tt.state, tt.want)
				}
				mu.Lock()
				defer mu.Unlock()
				if asked != before {
					t.Errorf("it was looked for %d times more, in vain", asked-before)
				}
				m.mu.Lock()
				defer m.mu.Unlock()
				m.cfg.Resolve = h.resolve
			})
		})
	}
}

// What a target stands for may go while its device stays, as a group of processes does.
func TestLostWithItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		var mu sync.Mutex
		var gone error
		m, _ := newHost(t, e, func(c *Config) {
			c.LookEvery = 500 * time.Millisecond
			c.Standing = func(target.Target) error {
				mu.Lock()
				defer mu.Unlock()
				return gone
			}
		})
		set := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			gone = err
		}
		f, err := m.Apply(t.Context(), on("80"))
		if err != nil {
			t.Fatal(err)
		}
		set(errors.New("cannot be told"))
		after(time.Second)
		if got := m.held[f.ID].fault; got.State != fault.Active {
			t.Errorf("%s, although it is not known to be gone", got.State)
		}
		set(fmt.Errorf("cgroup /a was removed: %w", fs.ErrNotExist))
		after(time.Second)
		if got := m.held[f.ID].fault; got.State != fault.Lost || !strings.Contains(got.Reason, "cgroup /a was removed") {
			t.Errorf("%s: %q", got.State, got.Reason)
		}
		if cleared, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, ""); err != nil || len(cleared) != 1 || len(e.inForce()) > 0 {
			t.Errorf("clear: %+v, %v, in force %v", cleared, err, e.inForce())
		}
	})
}

// A fault of another life that could not be put back follows its target, too.
func TestRestoreIsReattached(t *testing.T) {
	repaired(t, func(t *testing.T, e *fakeEngine, m *Manager, h *movingHost) {
		h.move(e, 0)
		f := fault.Fault{ID: "zzz1", Spec: follows(on("80")), Applied: time.Now(), Expires: time.Now().Add(time.Minute)}
		if _, err := m.Restore(t.Context(), f); err == nil {
			t.Fatal("restored without its device")
		}
		after(2 * time.Second)
		h.move(e, 20)
		after(2 * time.Second)
		got, err := m.Get(t.Context(), f.ID)
		if err != nil || got.State != fault.Active || !strings.Contains(strings.Join(got.Warnings, "\n"), "nothing was impaired") {
			t.Errorf("%+v, %v", got, err)
		}
		kept := m.Keep(t.Context())
		if len(kept) != 1 || !kept[0].Spec.Reattach {
			t.Errorf("kept %+v", kept)
		}
	})
}

// Many faults on a device that comes and goes, with changes, renewals and clears beside it.
func TestReattachStress(t *testing.T) {
	e := newFakeEngine()
	host := &movingHost{index: 10}
	var file string
	m, h := newHost(t, e, func(c *Config) {
		file = withFile(t, c)
		c.LookEvery, c.Resolve = 5*time.Millisecond, host.resolve
	})
	host.fakeHost = h
	stop := make(chan struct{})
	var moving, working sync.WaitGroup
	moving.Go(func() {
		for i := 20; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(3 * time.Millisecond):
			}
			host.move(e, []int{0, i, i}[i%3])
		}
	})
	for client := range 8 {
		working.Go(func() {
			for range 30 {
				s := follows(on(fmt.Sprint(80 + client)))
				s.Owner = fmt.Sprintf("uid %d", client)
				f, err := m.Apply(t.Context(), s)
				if err != nil {
					continue // it is away
				}
				loss := qdisc.Percent(5)
				_, _ = m.Change(t.Context(), f.ID, s.Owner, 0, qdisc.Patch{Loss: &loss})
				time.Sleep(5 * time.Millisecond)
				_, _ = m.Renew(t.Context(), f.ID, s.Owner, 0)
				if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, s.Owner); err != nil {
					t.Errorf("clear: %v", err)
				}
			}
		})
	}
	working.Wait()
	close(stop)
	moving.Wait()
	host.move(e, 10)
	if left := m.List(t.Context()); len(left) > 0 || len(e.inForce()) > 0 {
		t.Errorf("left %v, in force %v", left, e.inForce())
	}
	_ = file
}
