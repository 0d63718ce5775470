package lease

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// slowEngine takes its time for what a test says.
type slowEngine struct {
	*fakeEngine
	mu               sync.Mutex
	set, read, clear time.Duration
}

// slow makes the calls from now on take that long.
func (e *slowEngine) slow(set, read, clear time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.set, e.read, e.clear = set, read, clear
}

func (e *slowEngine) sleep(d *time.Duration) {
	e.mu.Lock()
	long := *d
	e.mu.Unlock()
	time.Sleep(long)
}

func (e *slowEngine) Set(ctx context.Context, p target.Place, n qdisc.Netem, deadline time.Time) error {
	e.sleep(&e.set)
	return e.fakeEngine.Set(ctx, p, n, deadline)
}

func (e *slowEngine) Read(ctx context.Context, p target.Place) (fault.Status, error) {
	e.sleep(&e.read)
	return e.fakeEngine.Read(context.WithoutCancel(ctx), p)
}

func (e *slowEngine) Clear(ctx context.Context, p target.Place) error {
	e.sleep(&e.clear)
	return e.fakeEngine.Clear(ctx, p)
}

// newSlowHost is newHost with an engine that can be slow.
func newSlowHost(t *testing.T) (*Manager, *slowEngine) {
	t.Helper()
	e := &slowEngine{fakeEngine: newFakeEngine()}
	m, _ := newHost(t, e.fakeEngine, func(c *Config) { c.Engines = map[fault.Engine]Engine{fault.EBPF: e} })
	return m, e
}

// What is under way when the faults are handed over either happens, and the next life knows
// it, or is refused: nothing that was acknowledged is undone. delays are shorter and longer
// than a Keep waits.
func TestKeepAndWhatIsUnderWay(t *testing.T) {
	loss := qdisc.Percent(5)
	for name, call := range map[string]func(context.Context, *Manager, string) (fault.Fault, error){
		"a clear": func(ctx context.Context, m *Manager, id string) (fault.Fault, error) {
			cleared, err := m.Clear(ctx, fault.Selector{ID: id}, "uid 0")
			if err == nil && len(cleared) != 1 {
				err = fmt.Errorf("cleared %+v", cleared)
			}
			return fault.Fault{}, err
		},
		"a clear of all": func(ctx context.Context, m *Manager, _ string) (fault.Fault, error) {
			_, err := m.Clear(ctx, fault.Selector{All: true}, "")
			return fault.Fault{}, err
		},
		"a change": func(ctx context.Context, m *Manager, id string) (fault.Fault, error) {
			return m.Change(ctx, id, "uid 0", 0, qdisc.Patch{Loss: &loss})
		},
		"a renewal": func(ctx context.Context, m *Manager, id string) (fault.Fault, error) {
			return m.Renew(ctx, id, "uid 0", time.Hour)
		},
	} {
		for step, slow := range map[string]func(*slowEngine, time.Duration){
			"the lane": nil,
			"a set":    func(e *slowEngine, d time.Duration) { e.slow(d, 0, 0) },
			"a read":   func(e *slowEngine, d time.Duration) { e.slow(0, d, 0) },
			"an end":   func(e *slowEngine, d time.Duration) { e.slow(0, 0, d) },
		} {
			for _, delay := range []time.Duration{time.Millisecond, 2 * time.Second, 20 * time.Second} {
				t.Run(fmt.Sprintf("%s/%s of %s", name, step, delay), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						m, e := newSlowHost(t)
						f, err := m.Apply(t.Context(), on("80"))
						if err != nil {
							t.Fatal(err)
						}
						leave := func() {}
						if slow == nil {
							if _, leave, err = m.enterFault(t.Context(), f.ID); err != nil {
								t.Fatal(err)
							}
						} else {
							slow(e, delay)
						}
						var got fault.Fault
						answered := make(chan error, 1)
						go func() {
							var err error
							got, err = call(t.Context(), m, f.ID)
							answered <- err
						}()
						synctest.Wait()
						go func() {
							if slow == nil {
								time.Sleep(delay)
							}
							leave()
						}()
						begun := time.Now()
						kept := m.Keep(t.Context())
						if took := time.Since(begun); took > keepTime+lookTime {
							t.Errorf("keeping took %s", took)
						}
						err = <-answered
						e.slow(0, 0, 0)
						switch {
						case err != nil && !strings.Contains(err.Error(), "the agent is shutting down"):
							t.Errorf("refused: %v", err)
						case err == nil && got.ID == "": // cleared
							if len(kept) != 0 {
								t.Errorf("what was cleared is put back: %+v", kept)
							}
						case len(kept) != 1:
							t.Errorf("kept %d, call: %v", len(kept), err)
						case err == nil && (kept[0].Spec.Packet.Loss != got.Spec.Packet.Loss || !kept[0].Expires.Equal(got.Expires)):
							t.Errorf("kept %+v, acknowledged was %+v", kept[0], got)
						case err != nil && (kept[0].Spec.Packet.Loss != f.Spec.Packet.Loss || !kept[0].Expires.Equal(f.Expires)):
							t.Errorf("kept %+v, which was refused; acknowledged was %+v", kept[0], f)
						}
					})
				})
			}
		}
	}
}

// A fault whose time ends while the faults are handed over is not put back, or told as
// expired by the next life.
func TestKeepAndAnEnd(t *testing.T) {
	for _, delay := range []time.Duration{time.Second, 3 * time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m, e := newSlowHost(t)
			f, err := m.Apply(t.Context(), with(on("80"), func(s *fault.Spec) { s.TTL = 2 * time.Second }))
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(1900 * time.Millisecond)
			e.slow(0, delay, 0)
			go m.Get(t.Context(), f.ID) //nolint:errcheck // it only takes its time
			synctest.Wait()
			kept := m.Keep(t.Context())
			time.Sleep(delay)
			e.slow(0, 0, 0)
			if err := m.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			next, _ := newSlowHost(t)
			for _, k := range kept {
				time.Sleep(time.Until(f.Expires) + time.Second)
				if back, err := next.Restore(t.Context(), k); err != nil || back.State != fault.Expired {
					t.Errorf("restored %+v, %v", back, err)
				}
			}
			if n := len(next.List(t.Context())); n != 0 {
				t.Errorf("%d faults are back", n)
			}
		})
	}
}

// A target that is taken away while the faults are handed over takes its faults with it, or
// stays with them.
func TestKeepAndRetire(t *testing.T) {
	for _, broken := range []error{nil, errBroken} {
		synctest.Test(t, func(t *testing.T) {
			e := newFakeEngine()
			m := newManager(t, e)
			if _, err := m.Apply(t.Context(), loss(20)); err != nil {
				t.Fatal(err)
			}
			e.failClear(broken)
			retired := make(chan error, 1)
			go func() {
				retired <- m.Retire(t.Context(), []string{"pg"}, func(context.Context) error {
					time.Sleep(3 * keepTime)
					return nil
				})
			}()
			synctest.Wait()
			kept := m.Keep(t.Context())
			if err := <-retired; (err == nil) == (len(kept) == 1) {
				t.Errorf("retired: %v, kept %+v", err, kept)
			}
			e.failClear(nil)
		})
	}
	m := newManager(t, newFakeEngine())
	if _, err := m.Apply(t.Context(), loss(20)); err != nil {
		t.Fatal(err)
	}
	m.Keep(t.Context())
	err := m.Retire(t.Context(), []string{"pg"}, func(context.Context) error { t.Error("the target went"); return nil })
	if err == nil || !strings.Contains(err.Error(), "handed its faults over") {
		t.Errorf("a target whose faults were handed over: %v", err)
	}
}
