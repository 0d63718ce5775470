package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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
	mu              sync.Mutex
	set, read, free time.Duration
}

// slow makes the calls from now on take that long.
func (e *slowEngine) slow(set, read, free time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.set, e.read, e.free = set, read, free
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
	e.sleep(&e.free)
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

// Whatever clients are told while the faults are handed over is what the next life has:
// each fault as its owner knows it, and none that he ended.
func TestKeepAmongClients(t *testing.T) {
	handed := 0
	for seed := range uint64(8) {
		m, e := newSlowHost(t)
		e.slow(50*time.Microsecond, 20*time.Microsecond, 50*time.Microsecond)
		const clients = 24
		known := make([]map[string]fault.Fault, clients)
		var done sync.WaitGroup
		for client := range clients {
			known[client] = map[string]fault.Fault{}
			done.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(client)))
				if err := busy(t.Context(), m, r, fmt.Sprint(1000+client/2), known[client]); err == nil || !strings.Contains(err.Error(), "the agent is shutting down") {
					t.Errorf("client %d: %v", client, err)
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		kept := m.Keep(t.Context())
		done.Wait()
		all := map[string]fault.Fault{}
		for _, k := range known {
			maps.Copy(all, k)
		}
		for _, k := range kept {
			f, ok := all[k.ID]
			if delete(all, k.ID); !ok || f.Spec.Packet.Loss != k.Spec.Packet.Loss || !f.Expires.Equal(k.Expires) {
				t.Errorf("kept %+v, and its owner knows %+v", k, f)
			}
		}
		if handed += len(kept); len(all) > 0 {
			t.Errorf("not kept: %+v", all)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if handed == 0 {
		t.Error("nothing was ever handed over")
	}
}

// busy applies, changes, renews and clears until it is refused, and notes what it was told.
// Two clients share a port, so that they meet in a lane.
func busy(ctx context.Context, m *Manager, r *rand.Rand, port string, known map[string]fault.Fault) error {
	for n := qdisc.Percent(1); ; n++ {
		s := on(port)
		s.Owner, s.Packet = "uid "+port, &qdisc.Netem{Loss: 1}
		if r.IntN(2) == 0 {
			s.Packet = &qdisc.Netem{Delay: time.Millisecond}
		}
		f, err := m.Apply(ctx, s)
		if errors.Is(err, fault.ErrConflict) {
			continue // the other client's
		}
		if err != nil {
			return err
		}
		known[f.ID] = f
		for range r.IntN(3) {
			loss := 1 + n/1000
			if r.IntN(2) == 0 && s.Packet.Loss != 0 {
				f, err = m.Change(ctx, f.ID, s.Owner, 0, qdisc.Patch{Loss: &loss})
			} else {
				f, err = m.Renew(ctx, f.ID, s.Owner, time.Duration(1+r.IntN(1000))*time.Minute)
			}
			if err != nil {
				return err
			}
			known[f.ID] = f
		}
		if _, err := m.Clear(ctx, fault.Selector{ID: f.ID}, s.Owner); err != nil {
			return err
		}
		delete(known, f.ID)
	}
}
