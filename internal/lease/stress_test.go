package lease

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/journal"
	"netemd/qdisc"
)

// withFile has the manager write to a real journal, and returns its file.
func withFile(t *testing.T, c *Config) string {
	t.Helper()
	dir := t.TempDir()
	j, _, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	c.Journal = j
	return filepath.Join(dir, journal.Name)
}

// nothingLeft looks at all that a Manager remembers.
func nothingLeft(t *testing.T, m *Manager, e *fakeEngine, file string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for what, n := range map[string]int{
		"faults": len(m.held), "faults in order": len(m.order), "lanes": len(m.lanes.all), "waiting": len(m.line), "settings": len(m.settings),
		"requests": len(m.requests), "logs": len(m.ended), "restored": len(m.restored), "watchers": len(m.events.subs), "in force": len(e.inForce()),
	} {
		if n > 0 {
			t.Errorf("%d %s left", n, what)
		}
	}
	if st, err := os.Stat(file); err != nil || st.Size() > 1<<20 {
		t.Errorf("the journal has %d bytes, %v", st.Size(), err)
	}
}

func TestCyclesLeaveNothing(t *testing.T) {
	e := newFakeEngine()
	var file string
	m, _ := newHost(t, e, func(c *Config) { file = withFile(t, c) })
	before := runtime.NumGoroutine()
	cycles := 2000
	if os.Getenv("NETEMD_TEST_LONG") != "" {
		cycles = 10_000
	}
	for i := range cycles {
		s := on([]string{"80", "81-90", "443"}[i%3])
		var err error
		if i%2 == 0 {
			var h *Hold
			if h, err = m.Hold(t.Context(), s, nil); err == nil {
				_, err = h.Release(t.Context())
			}
		} else {
			var f fault.Fault
			if f, err = m.Apply(t.Context(), s); err == nil {
				_, err = m.Clear(t.Context(), fault.Selector{ID: f.ID}, "")
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		e.done()
	}
	nothingLeft(t, m, e, file)
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// Many clients want the same few places. Each waits until it has one alone, and sees what
// it asked for there, and nobody else's, until it ends it.
func TestManyClients(t *testing.T) {
	const clients = 200
	rounds := 2
	if os.Getenv("NETEMD_TEST_LONG") != "" {
		rounds = 10
	}
	e := newFakeEngine()
	var file string
	m, _ := newHost(t, e, func(c *Config) {
		file = withFile(t, c)
		c.Limits, c.LookEvery = Limits{Waiting: clients}, 20*time.Millisecond
	})
	var done sync.WaitGroup
	var waited, refused atomic.Int64
	for client := range clients {
		done.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(client)))
			for round := range rounds {
				s := on([]string{"80", "81", "80-90", "443", "8000"}[r.IntN(5)])
				s.Selector.Device = []string{"v0", "v1"}[r.IntN(2)]
				s.Owner, s.Wait = fmt.Sprintf("uid %d", client), 5*time.Minute
				s.Packet = &qdisc.Netem{Delay: time.Duration(client*rounds+round+1) * time.Microsecond}
				if r.IntN(10) == 0 { // this one does not wait
					s.Wait = 0
				}
				h, err := m.Hold(t.Context(), s, func(error) { waited.Add(1) })
				if errors.Is(err, fault.ErrConflict) && s.Wait == 0 {
					refused.Add(1)
					continue
				}
				if err != nil {
					t.Errorf("client %d: %v", client, err)
					return
				}
				if err := exclusive(t, m, e, h, *s.Packet, r.IntN(3)); err != nil {
					t.Errorf("client %d: %v", client, err)
				}
			}
		})
	}
	done.Wait()
	if waited.Load() < clients || refused.Load() == 0 {
		t.Errorf("%d waited, %d were refused: too few for a test", waited.Load(), refused.Load())
	}
	nothingLeft(t, m, e, file)
}

// exclusive uses a hold for a moment, and ends it in one of three ways.
func exclusive(t *testing.T, m *Manager, e *fakeEngine, h *Hold, want qdisc.Netem, way int) error {
	m.mu.Lock()
	key := m.held[h.ID()].slots[0].key
	m.mu.Unlock()
	see := func(what string) error {
		if got := e.inForce()[key]; got != want {
			return fmt.Errorf("%s: in force is %v, want %v", what, got, want)
		}
		return nil
	}
	if err := see("applied"); err != nil {
		return err
	}
	want.Loss = 5
	if _, err := m.Change(t.Context(), h.ID(), h.Fault().Spec.Owner, h.Token(), qdisc.Patch{Loss: &want.Loss}); err != nil {
		return err
	}
	if _, err := h.Renew(t.Context()); err != nil {
		return err
	}
	if err := see("changed"); err != nil {
		return err
	}
	switch way {
	case 0:
		_, err := h.Release(t.Context())
		return err
	case 1:
		h.Drop(0)
		return nil
	}
	_, err := m.Clear(t.Context(), fault.Selector{ID: h.ID()}, "")
	return err
}
